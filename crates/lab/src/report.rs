//! What an experiment found, as text, as JSON and as a picture: the published figures on the left, ours on the right.

use comfy_table::{CellAlignment, Table as Grid, presets};
use plotters::prelude::*;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// A table of text cells; the first column names the row.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// As long as the head each.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows.
    pub fn new(title: impl Into<String>, head: &[&str]) -> Table {
        Table {
            title: title.into(),
            head: head.iter().map(|text| (*text).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// As Markdown, below its title.
    pub fn text(&self) -> String {
        let mut grid = Grid::new();
        grid.load_style(presets::ASCII_MARKDOWN).set_header(&self.head);
        for row in &self.rows {
            grid.add_row(row);
        }
        for column in grid.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n{grid}\n", self.title)
    }
}

/// A bar with its spread, in a group of bars.
#[derive(Debug, Clone, Serialize)]
pub struct Bar {
    /// What it belongs to.
    pub group: String,
    /// Which of the group's.
    pub label: String,
    /// Height.
    pub value: f64,
    /// Smallest and largest of the runs.
    pub spread: (f64, f64),
}

/// A bar chart.
#[derive(Debug, Clone, Serialize)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// What the bars measure, with its unit.
    pub axis: String,
    /// From left to right, group by group.
    pub bars: Vec<Bar>,
}

/// The result of an experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Its name on the command line.
    pub experiment: &'static str,
    /// What was run: scale, sizes, n.
    pub setup: Vec<String>,
    /// Published beside ours.
    pub tables: Vec<Table>,
    /// What must not be compared, and why.
    pub not_comparable: Vec<String>,
    /// Every figure behind the tables.
    pub results: serde_json::Value,
    /// For `--plot`.
    pub chart: Chart,
}

impl Report {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: &str| writeln!(text, "{line}").expect("writing to a string");
        self.setup.iter().for_each(|setup| line(setup));
        for table in &self.tables {
            line("");
            line(table.text().trim_end());
        }
        line("");
        line("Not comparable:");
        self.not_comparable.iter().for_each(|reason| line(&format!("  - {reason}")));
        text
    }

    /// As JSON, with all figures.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and finite numbers")
    }

    /// Draws the chart into an SVG file.
    ///
    /// # Errors
    /// What kept the file from being written.
    pub fn plot(&self, path: &Path) -> Result<(), PlotError> {
        draw(&self.chart, path).map_err(|error| PlotError(error.to_string()))
    }
}

/// The picture could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlotError(String);

fn draw(chart: &Chart, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    // plotters reports a file that cannot be written only when its backend is dropped, by a panic: make the text first.
    let mut svg = String::new();
    let width = (chart.bars.len() as u32 * 46 + 160).clamp(480, 4000);
    {
        let root = SVGBackend::with_string(&mut svg, (width, 520)).into_drawing_area();
        root.fill(&WHITE)?;
        let top = chart.bars.iter().map(|bar| bar.spread.1.max(bar.value)).fold(0.0, f64::max);
        let top = if top > 0.0 { top * 1.1 } else { 1.0 };
        let count = chart.bars.len() as f64;
        let mut context = ChartBuilder::on(&root)
            .caption(&chart.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(150)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..count.max(1.0), 0.0..top)?;
        context.configure_mesh().disable_x_mesh().disable_x_axis().y_desc(&chart.axis).draw()?;
        let groups: Vec<&String> = chart.bars.iter().map(|bar| &bar.group).collect();
        let mut color = 0;
        for (index, bar) in chart.bars.iter().enumerate() {
            if index > 0 && groups[index] != groups[index - 1] {
                color += 1;
            }
            let left = index as f64;
            let fill = Palette99::pick(color).mix(0.8).filled();
            context.draw_series([Rectangle::new([(left + 0.1, 0.0), (left + 0.9, bar.value)], fill)])?;
            let line = vec![(left + 0.5, bar.spread.0), (left + 0.5, bar.spread.1)];
            context.draw_series([PathElement::new(line, BLACK)])?;
            let (x, y) = context.backend_coord(&(left + 0.6, 0.0));
            let style = ("sans-serif", 11).into_font().transform(FontTransform::Rotate90).color(&BLACK);
            root.draw(&Text::new(format!("{} · {}", bar.group, bar.label), (x, y + 6), style))?;
        }
        root.present()?;
    }
    std::fs::write(path, svg)?;
    Ok(())
}

/// `part` of `whole` in percent, with as many digits as tell something.
pub fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 {
        return "-".to_owned();
    }
    let percent = 100.0 * part / whole;
    match percent {
        0.0 => "0 %".to_owned(),
        small if small < 0.1 => format!("{small:.3} %"),
        small if small < 10.0 => format!("{small:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

//! A bar chart as an SVG file.

use plotters::prelude::*;
use serde::Serialize;
use std::path::Path;

/// A bar with its spread, in a group of bars.
#[derive(Debug, Clone, Serialize)]
pub struct Bar {
    /// The group's name. Adjacent bars of one group have the same colour.
    pub group: String,
    /// The bar's name within its group.
    pub label: String,
    /// Height of the bar.
    pub value: f64,
    /// Smallest and largest of the runs, drawn as a line over the bar.
    pub spread: (f64, f64),
}

/// A bar chart.
#[derive(Debug, Clone, Serialize)]
pub struct Chart {
    /// The line above the chart.
    pub title: String,
    /// The quantity that the bars show, with its unit.
    pub axis: String,
    /// Bars from left to right, group by group.
    pub bars: Vec<Bar>,
}

/// The picture could not be drawn or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlotError(String);

impl Chart {
    /// Draws the chart into an SVG file.
    ///
    /// # Errors
    /// [`PlotError`] with the reason why the file could not be written.
    pub(crate) fn plot(&self, path: &Path) -> Result<(), PlotError> {
        self.draw(path).map_err(|error| PlotError(error.to_string()))
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        // The picture is made in memory first: the SVG backend reports a file that cannot be
        // written only when it is dropped, by a panic.
        let mut svg = String::new();
        let width = (self.bars.len() as u32 * 46 + 160).clamp(480, 4000);
        {
            let root = SVGBackend::with_string(&mut svg, (width, 520)).into_drawing_area();
            root.fill(&WHITE)?;
            let top = self.bars.iter().map(|bar| bar.spread.1.max(bar.value)).fold(0.0, f64::max);
            let top = if top > 0.0 { top * 1.1 } else { 1.0 };
            let count = self.bars.len() as f64;
            let mut context = ChartBuilder::on(&root)
                .caption(&self.title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(150)
                .y_label_area_size(80)
                .build_cartesian_2d(0.0..count.max(1.0), 0.0..top)?;
            context.configure_mesh().disable_x_mesh().disable_x_axis().y_desc(&self.axis).draw()?;
            let groups: Vec<&String> = self.bars.iter().map(|bar| &bar.group).collect();
            let mut color = 0;
            for (index, bar) in self.bars.iter().enumerate() {
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
}

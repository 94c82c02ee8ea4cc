//! A bar chart as an SVG file: groups one below the other, a row for each bar, colours by the bars'
//! names.

use crate::picture::{LINE, Picture, WIDTH};
use serde::Serialize;
use std::path::Path;

/// A bar with its spread, in a group of bars.
#[derive(Debug, Clone, Serialize)]
pub struct Bar {
    /// The group's name. Adjacent bars of one group stand together.
    pub group: String,
    /// The bar's name within its group. Bars of one name have the same colour in every group.
    pub label: String,
    /// Length of the bar.
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
    /// Bars from top to bottom, group by group.
    pub bars: Vec<Bar>,
}

/// The picture could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlotError(#[from] std::io::Error);

/// Colours that people with colour blindness can tell apart (Okabe and Ito), then greys.
const COLOURS: [&str; 9] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d1f", "#6b6b6b", "#a8a8a8"];
/// Width of the names at the left, and of the numbers at the right.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
/// Height of a bar's row and of a group's name.
const ROW: f64 = 18.0;
const NAME: f64 = 28.0;
/// Largest value to smallest from which the axis is logarithmic.
const LOG_FROM: f64 = 100.0;

/// How values become lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    Linear { end: f64 },
    Log { start: f64, end: f64 },
}

impl Scale {
    fn of(bars: &[Bar]) -> Scale {
        let finite = |value: &f64| value.is_finite();
        let most = bars.iter().map(|bar| bar.value.max(bar.spread.1)).filter(finite).fold(0.0, f64::max);
        let least = bars.iter().map(|bar| bar.value).filter(finite).fold(f64::INFINITY, f64::min);
        if least > 0.0 && most / least >= LOG_FROM && most.is_finite() {
            let (start, end) = (least.log10().floor(), most.log10().ceil());
            Scale::Log { start: 10f64.powf(start), end: 10f64.powf(end) }
        } else {
            Scale::Linear { end: round_end(most) }
        }
    }

    fn x(self, value: f64) -> f64 {
        let share = match self {
            Scale::Linear { end } => value / end,
            Scale::Log { start, end } => (value.max(start) / start).log10() / (end / start).log10(),
        };
        LEFT + (WIDTH - LEFT - RIGHT) * if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear { end } => (0..=4).map(|step| end * f64::from(step) / 4.0).collect(),
            Scale::Log { start, end } => {
                let decades = (end / start).log10().round() as i32;
                (0..=decades).map(|decade| start * 10f64.powi(decade)).collect()
            }
        }
    }
}

/// A round number that is at least `most`.
fn round_end(most: f64) -> f64 {
    if !(most > 0.0 && most.is_finite()) {
        return 1.0;
    }
    let digit = 10f64.powf(most.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    steps.map(|step| step * digit).into_iter().find(|end| *end >= most).unwrap_or(most)
}

/// A number with three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// A name that fits into its column.
fn shortened(name: &str, chars: usize) -> String {
    if name.chars().count() <= chars {
        return name.to_owned();
    }
    name.chars().take(chars - 1).chain(['…']).collect()
}

impl Chart {
    /// Draws the chart into an SVG file, with `notes` (sizes, machine) below its title.
    ///
    /// # Errors
    /// [`PlotError`]: the file could not be written.
    pub(crate) fn plot(&self, path: &Path, notes: &[String]) -> Result<(), PlotError> {
        Ok(std::fs::write(path, self.svg(notes))?)
    }

    /// The chart as SVG.
    fn svg(&self, notes: &[String]) -> String {
        let mut picture = Picture::new(&self.title, notes);
        let mut names: Vec<&str> = Vec::new();
        for bar in &self.bars {
            if !names.contains(&bar.label.as_str()) {
                names.push(&bar.label);
            }
        }
        let colour = |label: &str| {
            let at = names.iter().position(|name| *name == label).unwrap_or(0);
            COLOURS[at.min(COLOURS.len() - 1)]
        };
        legend(&mut picture, &names, colour);
        let scale = Scale::of(&self.bars);
        let top = picture.y + 8.0;
        for group in self.bars.chunk_by(|a, b| a.group == b.group) {
            picture.y += NAME;
            picture.text(16.0, "font-size=\"13\" font-weight=\"bold\"", &group[0].group);
            picture.y += 6.0;
            for bar in group {
                row(&mut picture, bar, scale, colour(&bar.label));
            }
        }
        axis(&mut picture, scale, &self.axis, top);
        picture.document()
    }
}

fn legend(picture: &mut Picture, names: &[&str], colour: impl Fn(&str) -> &'static str) {
    picture.y += LINE + 6.0;
    let mut x = 16.0;
    for name in names {
        let width = 28.0 + 7.5 * name.chars().count() as f64;
        if x + width > WIDTH - 16.0 && x > 16.0 {
            x = 16.0;
            picture.y += LINE;
        }
        let (fill, top) = (colour(name), picture.y - 10.0);
        picture.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" fill=\"{fill}\"/>"
        ));
        picture.text(x + 17.0, "font-size=\"12\"", name);
        x += width;
    }
}

fn row(picture: &mut Picture, bar: &Bar, scale: Scale, fill: &str) {
    let (top, start, end) = (picture.y, scale.x(0.0), scale.x(bar.value));
    let (width, height) = (end - start, ROW - 4.0);
    picture.put(format_args!(
        "<rect x=\"{start:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\"/>"
    ));
    let (low, high, middle) = (scale.x(bar.spread.0), scale.x(bar.spread.1), top + height / 2.0);
    if high - low > 0.5 {
        picture.put(format_args!(
            "<path d=\"M{low:.1} {middle:.1}H{high:.1}\" stroke=\"black\" fill=\"none\"/>"
        ));
    }
    picture.y = top + height - 3.0;
    picture.text(LEFT - 8.0, "font-size=\"12\" text-anchor=\"end\"", &shortened(&bar.label, 26));
    picture.text(end.max(high) + 6.0, "font-size=\"12\"", &number(bar.value));
    picture.y = top + ROW;
}

/// The axis below the bars, and its lines from `top` on.
fn axis(picture: &mut Picture, scale: Scale, name: &str, top: f64) {
    let bottom = picture.y + 4.0;
    let kind = if matches!(scale, Scale::Log { .. }) { ", logarithmic" } else { "" };
    picture.y = bottom + 16.0;
    for tick in scale.ticks() {
        let x = scale.x(tick);
        picture.put(format_args!(
            "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"#000\" stroke-opacity=\"0.15\"/>"
        ));
        picture.text(x, "font-size=\"12\" text-anchor=\"middle\"", &number(tick));
    }
    picture.y += LINE;
    picture.text(LEFT, "font-size=\"12\"", &format!("{name}{kind}"));
}

#[cfg(test)]
mod tests;

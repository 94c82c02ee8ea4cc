//! Heat maps over time as an SVG file: for each case how full every part of something is, and below
//! it bands that add up, with the same time axis.

use crate::chart::PlotError;
use crate::picture::{LINE, Picture, WIDTH};
use std::path::Path;

/// Width of the names at the left and the legend at the right.
const LEFT: f64 = 110.0;
const RIGHT: f64 = 150.0;
/// Height of a heat map and of its bands.
const MAP: f64 = 192.0;
const BANDS: f64 = 110.0;
/// Shades of a heat map: a cell has one for each tenth.
const SHADES: usize = 10;
/// Colours of bands that people with colour blindness can tell apart.
const COLOURS: [&str; 7] = ["#e8e8e8", "#56b4e9", "#cc79a7", "#009e73", "#e69f00", "#0072b2", "#6b6b6b"];

/// One case.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// Its name.
    pub title: String,
    /// For each span of time how full each cell is at its end, in percent, the first cell at the
    /// top.
    pub cells: Vec<Vec<u8>>,
    /// The name of the cells' axis.
    pub cells_name: String,
    /// Names of at most seven bands, each with a value for the start and for the end of each span.
    pub bands: Vec<(String, Vec<f64>)>,
    /// The name of what the bands add up to.
    pub bands_name: String,
    /// The most that the bands can add up to.
    pub bands_most: f64,
}

/// Heat maps one below the other.
#[derive(Clone, Debug)]
pub struct HeatMaps {
    /// The line above all.
    pub title: String,
    /// Lines below it.
    pub notes: Vec<String>,
    /// The name of the time axis, and its end.
    pub time: (String, f64),
    /// The cases.
    pub maps: Vec<HeatMap>,
}

impl HeatMaps {
    /// Draws all of them into an SVG file.
    ///
    /// # Errors
    /// [`PlotError`]: the file could not be written.
    pub fn plot(&self, path: &Path) -> Result<(), PlotError> {
        Ok(std::fs::write(path, self.svg())?)
    }

    fn svg(&self) -> String {
        let mut picture = Picture::new(&self.title, &self.notes);
        for map in &self.maps {
            picture.y += 2.0 * LINE;
            picture.text(16.0, "font-size=\"13\" font-weight=\"bold\"", &map.title);
            picture.y += 6.0;
            map.draw_cells(&mut picture);
            picture.y += 10.0;
            map.draw_bands(&mut picture);
            self.draw_time(&mut picture);
        }
        picture.document()
    }

    fn draw_time(&self, picture: &mut Picture) {
        let (name, end) = &self.time;
        picture.y += 14.0;
        for step in 0..=4 {
            let x = LEFT + (WIDTH - LEFT - RIGHT) * f64::from(step) / 4.0;
            let value = format!("{:.0}", end * f64::from(step) / 4.0);
            picture.text(x, "font-size=\"12\" text-anchor=\"middle\"", &value);
        }
        picture.text(WIDTH - RIGHT + 40.0, "font-size=\"12\"", name);
    }
}

/// The left edge of a column, out of so many.
fn left(column: usize, columns: usize) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * column as f64 / columns.max(1) as f64
}

impl HeatMap {
    /// A cell of the same shade goes on over all columns that have it.
    fn draw_cells(&self, picture: &mut Picture) {
        let (top, columns) = (picture.y, self.cells.len());
        let rows = self.cells.first().map_or(0, Vec::len);
        let height = MAP / rows.max(1) as f64;
        let shade =
            |column: usize, row: usize| usize::from(self.cells[column][row].min(100)).div_ceil(100 / SHADES);
        for row in 0..rows {
            let (y, mut column) = (top + height * row as f64, 0);
            while column < columns {
                let of = shade(column, row);
                let end = (column..columns).find(|&other| shade(other, row) != of).unwrap_or(columns);
                let (x, right) = (left(column, columns), left(end, columns));
                if of > 0 {
                    picture.put(format_args!(
                        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.2}\" fill=\"#0072b2\" fill-opacity=\"{:.1}\"/>",
                        right - x, height + 0.05, of as f64 / SHADES as f64
                    ));
                }
                column = end;
            }
        }
        frame(picture, top, MAP);
        picture.y = top + MAP / 2.0;
        picture.text(LEFT - 8.0, "font-size=\"12\" text-anchor=\"end\"", &self.cells_name);
        for (step, percent) in [100, 75, 50, 25, 0].into_iter().enumerate() {
            picture.y = top + 14.0 + LINE * step as f64;
            let (x, y, opacity) = (WIDTH - RIGHT + 12.0, picture.y - 10.0, f64::from(percent) / 100.0);
            picture.put(format_args!(
                "<rect x=\"{x}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"#0072b2\" fill-opacity=\"{opacity}\" stroke=\"#999\"/>"
            ));
            picture.text(x + 17.0, "font-size=\"12\"", &format!("{percent} % used"));
        }
        picture.y = top + MAP;
    }

    fn draw_bands(&self, picture: &mut Picture) {
        let (top, points) = (picture.y, self.bands.first().map_or(0, |band| band.1.len()));
        let most = self.bands_most.max(1e-9);
        let y = |value: f64| top + BANDS * (1.0 - (value / most).min(1.0));
        let mut base = vec![0.0; points];
        for (number, (name, values)) in self.bands.iter().enumerate() {
            let fill = COLOURS[number.min(COLOURS.len() - 1)];
            let above: Vec<f64> = base.iter().zip(values).map(|(base, value)| base + value).collect();
            let edge = |heights: &[f64], point: usize| {
                format!("{:.1},{:.1} ", left(point, points.saturating_sub(1)), y(heights[point]))
            };
            let outline: String = (0..points)
                .map(|point| edge(&above, point))
                .chain((0..points).rev().map(|point| edge(&base, point)))
                .collect();
            picture.put(format_args!("<polygon points=\"{}\" fill=\"{fill}\"/>", outline.trim_end()));
            base = above;
            picture.y = top + 12.0 + LINE * number as f64;
            let (x, square) = (WIDTH - RIGHT + 12.0, picture.y - 10.0);
            picture.put(format_args!(
                "<rect x=\"{x}\" y=\"{square:.1}\" width=\"12\" height=\"12\" fill=\"{fill}\" stroke=\"#999\"/>"
            ));
            picture.text(x + 17.0, "font-size=\"12\"", name);
        }
        frame(picture, top, BANDS);
        picture.y = top + BANDS / 2.0;
        picture.text(LEFT - 8.0, "font-size=\"12\" text-anchor=\"end\"", &self.bands_name);
        picture.y = top + BANDS;
    }
}

fn frame(picture: &mut Picture, top: f64, height: f64) {
    let width = WIDTH - LEFT - RIGHT;
    picture.put(format_args!(
        "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#999\"/>"
    ));
}

#[cfg(test)]
mod tests;

//! A table of text cells in Markdown.

use comfy_table::{CellAlignment, Table as Grid, presets};
use serde::Serialize;

/// A table of text cells; the first column names the row.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// The line above the table.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table without rows.
    pub fn new(title: impl Into<String>, head: &[&str]) -> Table {
        Table {
            title: title.into(),
            head: head.iter().map(|text| (*text).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Renders the title and, below it, the table in Markdown: all columns but the first are
    /// aligned to the right.
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

/// Formats `part` as a percentage of `total`. Small percentages get more digits; a `total` of 0
/// gives a dash.
pub fn percent(part: f64, total: f64) -> String {
    if total == 0.0 {
        return "-".to_owned();
    }
    let percent = 100.0 * part / total;
    match percent {
        0.0 => "0 %".to_owned(),
        small if small < 0.1 => format!("{small:.3} %"),
        small if small < 10.0 => format!("{small:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests;

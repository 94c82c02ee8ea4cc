//! The result of a measurement, as text and as JSON.

use crate::{Chart, PlotError, Table};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// The result of an experiment or a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The experiment's name on the command line.
    pub experiment: &'static str,
    /// The arrangement: scale, sizes, number of runs.
    pub setup: Vec<String>,
    /// Published figures, or those of other engines, beside ours.
    pub tables: Vec<Table>,
    /// Figures that must not be compared, and why.
    pub not_comparable: Vec<String>,
    /// Every figure behind the tables.
    pub results: serde_json::Value,
    /// The picture for `--plot`.
    pub chart: Chart,
}

impl Report {
    /// Renders setup, tables and caveats for a terminal.
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

    /// Renders everything as JSON, all figures included.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and finite numbers")
    }

    /// Draws the chart into an SVG file.
    ///
    /// # Errors
    /// [`PlotError`] with the reason why the file could not be written.
    pub fn plot(&self, path: &Path) -> Result<(), PlotError> {
        self.chart.plot(path)
    }
}

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

    /// Draws the chart into an SVG file, with the setup and this machine below its title.
    ///
    /// # Errors
    /// [`PlotError`] with the reason why the file could not be written.
    pub fn plot(&self, path: &Path) -> Result<(), PlotError> {
        let mut notes = self.setup.clone();
        notes.push(format!("Run on: {}.", machine()));
        self.chart.plot(path, &notes)
    }
}

/// Returns the model and the number of the processors, for people.
pub fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {processors} processors", model(&cpuinfo))
}

/// What `/proc/cpuinfo` calls the first processor. On aarch64 it has no name there, only numbers.
fn model(cpuinfo: &str) -> String {
    let architecture = std::env::consts::ARCH;
    let field = |name: &str| {
        cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim())
    };
    match (field("model name"), field("CPU implementer"), field("CPU part")) {
        (Some(name), ..) => name.to_owned(),
        (None, Some(implementer), Some(part)) => {
            format!("{architecture} processor (implementer {implementer}, part {part})")
        }
        _ => format!("unknown {architecture} processor"),
    }
}

#[cfg(test)]
mod tests;

//! The table of `folioswap advise`: which limit costs how much.

use super::Report;
use crate::size;
use folioswap_group::{counters::Counter, units::PAGE_SIZE};
use std::fmt::Write;

impl Report {
    /// The table, below a line that says how the run went.
    pub fn advice(&self) -> String {
        let mut text = String::new();
        self.write_advice(&mut text).expect("a String takes everything");
        text
    }

    fn write_advice(&self, text: &mut String) -> std::fmt::Result {
        let wall = self.wall.as_secs_f64();
        writeln!(text, "folioswap: {} after {wall:.2} s within {}", self.outcome, size::show(self.limit))?;
        let points = self.refaulted.points();
        let Some(well) = self.refaulted.runs_well() else {
            let peak = size::about(self.totals.peak_charge);
            return writeln!(
                text,
                "Nothing that left came back: this limit costs nothing. At most {peak} were charged; try a smaller limit."
            );
        };
        let waited = self.sums.counter(Counter::FaultNanoseconds) as f64 / 1e9;
        writeln!(text, "{:>10} {:>14} {:>14} {:>11}", "LIMIT", "PAGES BACK", "DATA BACK", "WAITING")?;
        for (number, point) in points.iter().enumerate() {
            let part = point.pages_in as f64 / self.refaulted.pages_in.max(1) as f64;
            writeln!(
                text,
                "{:>10} {:>14} {:>14} {:>9.2} s  {}",
                size::show(point.limit_bytes).replace(" ", ""),
                point.pages_in,
                size::show(point.pages_in.saturating_mul(PAGE_SIZE as u64)),
                waited * part,
                if number == 0 { "measured" } else { "predicted" },
            )?;
        }
        writeln!(text, "It needs about {} to run well (2 % of the pages still come back).", size::about(well))
    }
}

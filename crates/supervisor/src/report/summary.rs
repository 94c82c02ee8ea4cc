//! The ten lines of `--stats`.

use super::{Report, times};
use crate::{size, view::Latency};
use folioswap_group::{
    counters::{Counter, Gauge},
    decisions::Way,
    units::PAGE_SIZE,
};
use std::fmt::Write;

/// A larger limit is named if it spares at least this part of the pages that came back, in percent.
const WORTH_PERCENT: u64 = 50;

impl Report {
    /// The ten lines that matter most to whoever started the run.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        self.write_summary(&mut text).expect("a String takes everything");
        text
    }

    fn write_summary(&self, text: &mut String) -> std::fmt::Result {
        let (user, system) = times();
        let (wall, user, system) = (self.wall.as_secs_f64(), user.as_secs_f64(), system.as_secs_f64());
        writeln!(
            text,
            "folioswap: {} after {wall:.2} s (user {user:.2} s, system {system:.2} s)",
            self.outcome
        )?;
        let limit = size::show(self.limit);
        let mut line = |name: &str, value: String| writeln!(text, "  {name:<14}{value}");
        line("waiting", self.waiting())?;
        let peak = size::show(self.totals.peak_charge);
        line("limit", format!("{limit} ({}); at most {peak} were charged", self.scope.name()))?;
        let count = |counter| self.sums.counter(counter);
        let bytes = |counter| size::show(count(counter).saturating_mul(PAGE_SIZE as u64));
        if count(Counter::PagesOut) == 0 {
            line("swapped out", "nothing".to_owned())?;
        } else {
            line("swapped out", self.swapped())?;
            let (out, back) = (bytes(Counter::PagesOut), bytes(Counter::PagesIn));
            let (file_out, file_back) = (bytes(Counter::FilePagesOut), bytes(Counter::FilePagesIn));
            line("traffic", format!("{out} out, {back} back; files took {file_out} and gave {file_back}"))?;
        }
        let (major, minor) = (count(Counter::MajorFaults), count(Counter::MinorFaults));
        if major > 0 || minor > 0 {
            let times = match (self.latency_below(50), self.latency_below(99)) {
                (Some(half), Some(most)) => format!("; half took at most {half}, 99 % at most {most}"),
                _ => String::new(),
            };
            line("faults", format!("{major} that read, {minor} that did not{times}"))?;
            let pager = count(Counter::PagerNanoseconds) as f64 / 1e9;
            line("pager", format!("{pager:.2} s of processor time"))?;
        }
        let (members, at_once) = (self.totals.members, self.totals.members_peak);
        let unmanaged: u64 = self.unmanaged.iter().map(|entry| entry.processes).sum();
        let unmanaged = match unmanaged {
            0 => String::new(),
            some => format!("; {some} not managed (--stats=all names them)"),
        };
        let forks = count(Counter::Forks);
        let by_gate = match self.way {
            Way::Kernel => "",
            Way::GatedForks => " by the gate",
            Way::GatedCalls => " by the gate, which holds what calls use",
        };
        line(
            "processes",
            format!("{members} (at most {at_once} at a time), {forks} forks{by_gate}{unmanaged}"),
        )?;
        let devices = self.devices.iter().filter(|device| device.used > 0);
        let devices: Vec<_> =
            devices.map(|device| format!("{} {}", device.name, size::show(device.used))).collect();
        if !devices.is_empty() {
            line("devices", format!("at most {}", devices.join(", ")))?;
        }
        if let Some(advice) = self.another_limit() {
            line("another limit", advice)?;
        }
        if let Some(trouble) = self.trouble() {
            line("trouble", trouble)?;
        }
        Ok(())
    }

    /// The sentence about waiting.
    pub(crate) fn waiting(&self) -> String {
        let waited = self.sums.counter(Counter::FaultNanoseconds) as f64 / 1e9;
        let percent = 100.0 * waited / self.wall.as_secs_f64().max(1e-9);
        match percent {
            _ if waited < 0.005 => "no time was spent waiting for pages".to_owned(),
            ..=100.0 => {
                format!("{percent:.0} % of the wall time was spent waiting for pages ({waited:.2} s)")
            }
            _ => format!("threads waited {waited:.2} s for pages, {percent:.0} % of the wall time together"),
        }
    }

    fn swapped(&self) -> String {
        let fullest = &self.totals.fullest;
        let (original, used) = (fullest.gauge(Gauge::OrigDataSize), fullest.gauge(Gauge::MemUsedTotal));
        let all = original.saturating_add(fullest.gauge(Gauge::FileBytes));
        match self.ratio() {
            None => format!("at most {}", size::show(all)),
            Some(ratio) => format!(
                "at most {}, of which {} in {} of compressed RAM (ratio {ratio:.2})",
                size::show(all),
                size::show(original),
                size::show(used)
            ),
        }
    }

    /// The longest time that this part of the faults took, in percent; `None` when there was none.
    fn latency_below(&self, percent: u64) -> Option<String> {
        let nanoseconds = Latency(self.latency).below_ns(percent)?;
        Some(match nanoseconds {
            ..1_000_000 => format!("{} us", nanoseconds.div_ceil(1000)),
            1_000_000..1_000_000_000 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
            _ => format!("{:.1} s", nanoseconds as f64 / 1e9),
        })
    }

    /// What a larger limit would have spared.
    pub(crate) fn another_limit(&self) -> Option<String> {
        let came = self.refaulted.pages_in.max(1);
        let spared = |pages: u64| 100 - (u128::from(pages) * 100 / u128::from(came)).min(100) as u64;
        let points = self.refaulted.points();
        let point = points.iter().find(|point| spared(point.pages_in) >= WORTH_PERCENT)?;
        let well = size::about(self.refaulted.runs_well()?);
        let limit = size::show(self.refaulted.known_from());
        let larger = size::about(point.limit_bytes);
        let spared = spared(point.pages_in);
        Some(format!(
            "with {larger} instead of {limit} {spared} % of the pages that came back would have stayed; \
             about {well} to run well"
        ))
    }

    fn trouble(&self) -> Option<String> {
        let figures = [
            (Counter::Poisoned, "pages were lost"),
            (Counter::SwapoffLost, "pages were lost in a swapoff"),
            (Counter::WriteErrors, "writes were refused by a device"),
            (Counter::ReadRetries, "reads had to be repeated"),
            (Counter::Violations, "invariants did not hold"),
        ];
        let found = figures.map(|(counter, what)| (self.sums.counter(counter), what));
        let found: Vec<_> = found
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}

#[cfg(test)]
mod tests;

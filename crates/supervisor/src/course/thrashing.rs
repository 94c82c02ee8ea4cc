//! The verdict on a run that thrashes: it does little but wait for pages that it had a moment ago.

use folioswap_group::units::PAGE_SIZE;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// For how long a run must thrash before it is said.
const WINDOW: Duration = Duration::from_secs(10);
/// The time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// The part of the time, in percent, for which some thread waited.
const WAITED_PERCENT: u128 = 50;
/// The pages that came back, as a part of the limit's: for limits of less than a few GiB that many
/// times the limit comes back before the window ends.
const CAME_BACK_PART: u64 = 4;

/// What is done about a run that thrashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenThrashing {
    /// One line says so, and the run goes on.
    #[default]
    Tell,
    /// The group is ended, and the line says so too.
    End,
}

/// The sums of a group at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The pages that came back.
    pub refaults: u64,
    /// The time that threads waited for pages, in nanoseconds.
    pub waited_ns: u64,
}

/// The watch over a run.
#[derive(Debug, Default)]
pub struct Thrashing {
    looks: VecDeque<(Instant, Sums)>,
    is_said: bool,
}

/// The verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is to be said.
    Fine,
    /// The run has thrashed for 10 s, and this is the first time that it is found: this many pages
    /// came back, and threads waited for this part of the time, in percent.
    Thrashes {
        /// Pages that came back.
        pages: u64,
        /// Percent of the time; above 100 where several threads waited.
        waited_percent: u64,
    },
}

impl Thrashing {
    /// Whether the next look is due.
    pub fn is_due(&self, now: Instant) -> bool {
        !self.is_said && self.looks.back().is_none_or(|(then, _)| now.duration_since(*then) >= INTERVAL)
    }

    /// Looks at the sums of the group. Each second of the last ten must have been bad: a burst is
    /// not thrashing.
    pub fn look(&mut self, now: Instant, sums: Sums, limit: u64) -> Verdict {
        self.looks.push_back((now, sums));
        let first = self.looks[0];
        let passed = now.duration_since(first.0);
        if passed < WINDOW || self.is_said {
            return Verdict::Fine;
        }
        let is_bad = |from: &(Instant, Sums), to: &(Instant, Sums)| {
            let waited = u128::from(to.1.waited_ns.saturating_sub(from.1.waited_ns));
            let came = to.1.refaults.saturating_sub(from.1.refaults);
            let time = to.0.duration_since(from.0).as_nanos();
            // The pages that are enough for this part of the window.
            let enough = u128::from(limit / PAGE_SIZE as u64 / CAME_BACK_PART) * time / WINDOW.as_nanos();
            waited * 100 >= time * WAITED_PERCENT && u128::from(came) >= enough.max(1)
        };
        let all_bad = self.looks.iter().zip(self.looks.iter().skip(1)).all(|(from, to)| is_bad(from, to));
        self.looks.pop_front();
        if !all_bad {
            return Verdict::Fine;
        }
        self.is_said = true;
        let waited = u128::from(sums.waited_ns.saturating_sub(first.1.waited_ns));
        Verdict::Thrashes {
            pages: sums.refaults.saturating_sub(first.1.refaults),
            waited_percent: (waited * 100 / passed.as_nanos().max(1)) as u64,
        }
    }
}

#[cfg(test)]
mod tests;

//! What the supervisor gathers to tell its user: the course of the run, and the one line when it
//! thrashes.

use super::{Supervisor, ending::ENDED};
use crate::{
    course::{
        curve::{Away, Refaulted},
        record::Sample,
        thrashing::{self, Verdict, WhenThrashing},
    },
    report::{outcome::Outcome, totals::Levels},
    size,
};
use folioswap_group::{
    counters::{Counter, Gauge},
    decisions::Scope,
    units::PAGE_SIZE,
};
use std::time::Instant;

impl Supervisor {
    /// Takes a sample of the charge, and looks at the course of the run.
    pub(super) fn tend_course(&mut self, now: Instant) {
        let group = self.settings.memory.group();
        self.totals.sample(group, self.clusters.used());
        self.look_at_course();
        if self.course.record.as_ref().is_some_and(|record| record.is_due()) {
            self.sample_course();
        }
        if self.course.thrashing.is_due(now) {
            self.look_for_thrashing(now);
        }
    }

    /// Adds a sample of the group to the record, if there is one.
    pub(super) fn sample_course(&mut self) {
        if self.course.record.is_some() {
            let group = self.settings.memory.group();
            let (sums, levels) = (self.totals.sums(group), Levels::read(group));
            let (charge, limit) = (group.charge_bytes(), group.decisions.limit_bytes());
            let unmanaged = self.unmanaged;
            if let Some(record) = &mut self.course.record {
                record.sample(Sample {
                    at_ms: record.now_ms(),
                    charge,
                    limit,
                    store: levels.gauge(Gauge::MemUsedTotal),
                    staging: levels.gauge(Gauge::Staging),
                    metadata: levels.gauge(Gauge::Metadata),
                    swapped: levels.gauge(Gauge::Swapped),
                    unmanaged,
                    file: levels.gauge(Gauge::FileBytes),
                    pages_out: sums.counter(Counter::PagesOut),
                    pages_in: sums.counter(Counter::PagesIn),
                    waited_ns: sums.counter(Counter::FaultNanoseconds),
                    pager_ns: sums.counter(Counter::PagerNanoseconds),
                });
            }
        }
    }

    fn look_for_thrashing(&mut self, now: Instant) {
        let group = self.settings.memory.group();
        let sums = self.totals.sums(group);
        let sums = thrashing::Sums {
            refaults: sums.counter(Counter::WorkingsetRefault),
            waited_ns: sums.counter(Counter::FaultNanoseconds),
        };
        let limit = self.settings.limit;
        let Verdict::Thrashes { pages, waited_percent } = self.course.thrashing.look(now, sums, limit) else {
            return;
        };
        let needs = self
            .refaulted()
            .runs_well()
            .map_or_else(String::new, |bytes| format!("; it needs about {} to run well", size::about(bytes)));
        let found = format!(
            "folioswap: within {} it does little but wait for pages: {} came back within the last 10 s, and \
             {waited_percent} % of the time was spent waiting{needs}",
            size::show(limit),
            size::show(pages.saturating_mul(PAGE_SIZE as u64)),
        );
        match self.settings.when_thrashing {
            WhenThrashing::Tell => self.say(&format!("{found}\n")),
            WhenThrashing::End => {
                self.end_group(Outcome::Thrashed, &format!("{found}; {ENDED} (--thrashing end)\n"))
            }
        }
    }

    /// Looks at the course of all members.
    pub(super) fn look_at_course(&mut self) {
        let group = self.settings.memory.group();
        let levels = Levels::read(group);
        let away = Away {
            out: levels.gauge(Gauge::Swapped).saturating_sub(levels.gauge(Gauge::Staging)),
            stored: levels.gauge(Gauge::OrigDataSize),
            taken: match self.settings.scope {
                Scope::Total => levels.gauge(Gauge::MemUsedTotal),
                Scope::Resident => 0,
            },
            below: levels.gauge(Gauge::FileBytes),
        };
        self.course.look(group, away, self.settings.limit);
    }

    /// What the run shows of its refaults so far.
    pub(super) fn refaulted(&self) -> Refaulted {
        let group = self.settings.memory.group();
        let pages_in = self.totals.sums(group).counter(Counter::PagesIn);
        self.course.refaulted(group, pages_in)
    }
}

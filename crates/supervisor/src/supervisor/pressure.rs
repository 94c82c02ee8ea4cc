//! Pressure stall information of the group, in the kernel's terms and by its formula
//! (`kernel/sched/psi.c`).
//!
//! *some* is the share of time in which a thread waited for memory, *full* that in which no other
//! thread made progress meanwhile. The kernel keeps times for each CPU and adds them up weighted by
//! the time in which the CPU was not idle; here a process stands in the place of a CPU. Its handler
//! serves faults one after the other and counts the time in which at least one waits, which is the
//! time of *some*. Processor time of the process that does not fit beside the waits was used during
//! them, and is no part of *full*. For a process of one thread that is exact; where several threads
//! run at once *full* is rather too low.
//!
//! Every 2 s the shares of that period go into averages over 10, 60 and 300 s by the kernel's fixed
//! point factors.

use super::Supervisor;
use crate::processes::proc;
use folioswap_group::{counters::Counter, decisions::Pressure, group::Group};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The period of the averages (PSI_FREQ).
const PERIOD: Duration = Duration::from_secs(2);
/// 1.0 of the kernel's load averages.
const FIXED_1: u64 = 1 << 11;
/// What is left of an average after a period: 1/exp(2s/10s), 1/exp(2s/60s), 1/exp(2s/300s).
const EXP: [u64; 3] = [1677, 1981, 2034];
/// Periods in a row without a look after which the averages are as good as zero.
const MISSED_MAX: u32 = 2000;

/// What was known of a process at the last look, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    waited: u64,
    ran: u64,
}

/// The times of one process in one period, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// A thread waited.
    pub some: u64,
    /// A thread waited, and no other ran.
    pub full: u64,
    /// A thread waited or ran: the weight.
    pub busy: u64,
}

impl Times {
    /// The times of a process whose threads waited and ran for so long in a period.
    pub(super) fn of(period: u64, waited: u64, ran: u64) -> Self {
        let some = waited.min(period);
        let beside = period - some;
        let during = ran.saturating_sub(beside).min(some);
        Times { some, full: some - during, busy: ran.saturating_add(some).min(period) }
    }
}

/// The averages of one state, and its total.
#[derive(Clone, Copy, Debug, Default)]
struct Averages {
    /// In the kernel's fixed point, percent.
    avg: [u64; 3],
    /// Microseconds.
    total: u64,
}

impl Averages {
    /// Adds a period, as the kernel's `calc_avgs`: a time within it, after `missed` periods without
    /// any.
    fn add(&mut self, time_ns: u64, period_ns: u64, missed: u32) {
        let percent = time_ns.saturating_mul(100 * FIXED_1) / period_ns.max(1);
        for (avg, exp) in self.avg.iter_mut().zip(EXP) {
            for _ in 0..missed {
                *avg = *avg * exp / FIXED_1;
            }
            // `calc_load` rounds up while the average rises.
            let load = *avg * exp + percent * (FIXED_1 - exp) + if percent >= *avg { FIXED_1 - 1 } else { 0 };
            *avg = load / FIXED_1;
        }
        self.total = self.total.saturating_add(time_ns / 1000);
    }

    /// For readers: percent times 100, and microseconds.
    fn pack(&self) -> ([u32; 3], u64) {
        (self.avg.map(|avg| u32::try_from(avg * 100 / FIXED_1).unwrap_or(u32::MAX)), self.total)
    }
}

/// The pressure of the group.
pub(super) struct PressureMeter {
    seen: HashMap<u32, Seen>,
    some: Averages,
    full: Averages,
    began: Instant,
}

impl PressureMeter {
    /// The pressure of a group that begins now.
    pub(super) fn new(now: Instant) -> Self {
        PressureMeter {
            seen: HashMap::new(),
            some: Averages::default(),
            full: Averages::default(),
            began: now,
        }
    }

    /// When the next period ends.
    pub(super) fn due(&self) -> Instant {
        self.began + PERIOD
    }

    /// Ends a period: reads what the members have waited and run, and returns the new averages.
    /// Cost: a file of `/proc` for each member.
    pub(super) fn end_period(&mut self, group: Group<'_>, now: Instant) -> Pressure {
        let period = u64::try_from(now.duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        self.began = now;
        let mut seen = HashMap::new();
        let (mut some, mut full, mut weights) = (0_u128, 0_u128, 0_u128);
        for (seat, member) in group.taken() {
            // The pager is a process of its own, so its time is not among the program's.
            let ran = proc::processor_time(seat.pid()).unwrap_or(0);
            let is = Seen { waited: member.figures.counter(Counter::FaultNanoseconds), ran };
            // The first look at a process is the beginning of its first period.
            let before = self.seen.get(&seat.pid()).copied().unwrap_or(is);
            let times =
                Times::of(period, is.waited.saturating_sub(before.waited), ran.saturating_sub(before.ran));
            some += u128::from(times.some) * u128::from(times.busy);
            full += u128::from(times.full) * u128::from(times.busy);
            weights += u128::from(times.busy);
            seen.insert(seat.pid(), is);
        }
        self.seen = seen;
        let share = |sum: u128| u64::try_from(sum / weights.max(1)).unwrap_or(period).min(period);
        let missed = u32::try_from(period / PERIOD.as_nanos() as u64).unwrap_or(MISSED_MAX);
        let missed = missed.saturating_sub(1).min(MISSED_MAX);
        self.some.add(share(some), period, missed);
        self.full.add(share(full), period, missed);
        let ((some, some_total_us), (full, full_total_us)) = (self.some.pack(), self.full.pack());
        Pressure { some, some_total_us, full, full_total_us }
    }
}

impl Supervisor {
    /// Ends a period, if that is due. In a frozen group nobody waits and nobody runs.
    pub(super) fn tend_pressure(&mut self, now: Instant) {
        if now >= self.pressure.due() && self.frozen.is_none() {
            let pressure = self.pressure.end_period(self.settings.memory.group(), now);
            self.settings.memory.writer().publish_pressure(pressure);
        }
    }
}

#[cfg(test)]
mod tests;

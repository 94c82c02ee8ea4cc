//! One line of the screen: a group or a mount, with rates since the reading before.

use super::{history::History, view::Key};
use crate::operate::mounts::MountSnapshot;
use folioswap_devices::PAGE_SIZE;
use folioswap_group::counters::Counter;
use folioswap_supervisor::view::{GroupSnapshot, Latency, State};
use std::time::Duration;

/// What counters were at a reading. All only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub out: u64,
    pub back: u64,
    pub wait_ns: u64,
    pub pager_ns: u64,
    /// Faults by the time that they took.
    pub latency: Latency,
    pub refaults: u64,
}

/// Figures of the time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Bytes a second that were swapped out.
    pub out: f64,
    /// Bytes a second that came back.
    pub back: f64,
    /// Time that threads waited, in percent of one thread's time; `None` for mounts, which do not
    /// measure it.
    pub wait: Option<f64>,
    /// Processor time of the pager threads, in percent of one CPU.
    pub pager: Option<f64>,
    /// The time that 99 % of the faults took at most, in microseconds; `None` when there was none.
    pub p99_us: Option<u64>,
    /// Pages a second that came back after a known time away.
    pub refaults: f64,
}

/// What a line shows besides rates.
#[derive(Clone, Debug)]
pub enum Subject {
    Group(Box<GroupSnapshot>),
    Mount(Box<MountSnapshot>),
}

/// A line of the screen.
#[derive(Clone, Debug)]
pub struct Row {
    pub key: Key,
    pub subject: Subject,
    pub counts: Counts,
    pub rates: Rates,
    /// The charge in percent of the limit.
    pub charges: History,
    pub outs: History,
    pub backs: History,
    /// The time that threads waited, in percent of one thread's time.
    pub waits: History,
    /// The time from the reading before to each of these.
    pub times: History<Duration>,
}

impl Counts {
    fn of_group(group: &GroupSnapshot) -> Self {
        let get = |counter| group.counters.get(counter);
        Counts {
            out: get(Counter::PagesOut).saturating_mul(PAGE_SIZE as u64),
            back: get(Counter::PagesIn).saturating_mul(PAGE_SIZE as u64),
            wait_ns: get(Counter::FaultNanoseconds),
            pager_ns: get(Counter::PagerNanoseconds),
            latency: group.latency,
            refaults: get(Counter::WorkingsetRefault),
        }
    }

    fn of_mount(mount: &MountSnapshot) -> Self {
        Counts {
            out: mount.get("pswpout").saturating_mul(PAGE_SIZE as u64),
            back: mount.get("pswpin").saturating_mul(PAGE_SIZE as u64),
            ..Counts::default()
        }
    }

    /// The rates since `before`. A counter that is lower than before counts as unchanged: members
    /// write what they like.
    fn since(&self, before: &Counts, time: Duration) -> Rates {
        let seconds = time.as_secs_f64().max(1e-3);
        let of = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let percent = |now, before| of(now, before) / 1e7 / seconds;
        Rates {
            out: of(self.out, before.out) / seconds,
            back: of(self.back, before.back) / seconds,
            wait: Some(percent(self.wait_ns, before.wait_ns)),
            pager: Some(percent(self.pager_ns, before.pager_ns)),
            p99_us: self.latency.since(&before.latency).below_ns(99).map(|ns| ns.div_ceil(1000)),
            refaults: of(self.refaults, before.refaults) / seconds,
        }
    }
}

impl Row {
    /// A group that was not there before.
    pub fn group(group: GroupSnapshot) -> Self {
        let counts = Counts::of_group(&group);
        Row::new(Key::Group(group.pid), Subject::Group(Box::new(group)), counts)
    }

    /// A mount that was not there before.
    pub fn mount(mount: MountSnapshot) -> Self {
        let counts = Counts::of_mount(&mount);
        Row::new(Key::Mount(mount.directory.clone()), Subject::Mount(Box::new(mount)), counts)
    }

    fn new(key: Key, subject: Subject, counts: Counts) -> Self {
        let (charges, outs, backs, waits, times) = Default::default();
        Row { key, subject, counts, rates: Rates::default(), charges, outs, backs, waits, times }
    }

    /// Takes over what the row before has seen of the same subject.
    pub fn continued(mut self, before: Option<&Row>, time: Duration) -> Self {
        if let Some(before) = before {
            self.rates = self.counts.since(&before.counts, time);
            (self.charges, self.outs, self.backs) =
                (before.charges.clone(), before.outs.clone(), before.backs.clone());
            (self.waits, self.times) = (before.waits.clone(), before.times.clone());
        }
        if matches!(self.subject, Subject::Mount(_)) {
            (self.rates.wait, self.rates.pager, self.rates.p99_us) = (None, None, None);
        }
        self.charges.push((100.0 * self.charge() as f64 / self.limit().max(1) as f64) as u64);
        self.outs.push(self.rates.out as u64);
        self.backs.push(self.rates.back as u64);
        self.waits.push(self.rates.wait.unwrap_or(0.0) as u64);
        self.times.push(time);
        self
    }

    pub fn name(&self) -> String {
        match &self.subject {
            Subject::Group(group) => group.name.clone(),
            Subject::Mount(mount) => {
                folioswap_supervisor::processes::proc::printable(&mount.directory.to_string_lossy())
            }
        }
    }

    pub fn limit(&self) -> u64 {
        match &self.subject {
            Subject::Group(group) => group.limit,
            Subject::Mount(mount) => mount.limit(),
        }
    }

    pub fn charge(&self) -> u64 {
        match &self.subject {
            Subject::Group(group) => group.charge,
            Subject::Mount(mount) => mount.charge(),
        }
    }

    pub fn swapped(&self) -> u64 {
        match &self.subject {
            Subject::Group(group) => group.swapped,
            Subject::Mount(mount) => mount.swapped(),
        }
    }

    pub fn ratio(&self) -> Option<f64> {
        match &self.subject {
            Subject::Group(group) => group.ratio(),
            Subject::Mount(mount) => mount.ratio(),
        }
    }

    /// The command, with the state in front when it is not running.
    pub fn command(&self) -> String {
        match &self.subject {
            Subject::Group(group) if group.state == State::Running => group.command.clone(),
            Subject::Group(group) => format!("({}) {}", group.state.name(), group.command),
            Subject::Mount(mount) => {
                let short = folioswap_supervisor::size::short;
                format!("(mount, {} of {})", short(mount.get("content")), short(mount.get("content_max")))
            }
        }
    }
}

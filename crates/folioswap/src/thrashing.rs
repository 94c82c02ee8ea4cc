//! A watch for thrashing: a program that works with more than its limit holds is slow, and nothing
//! else would tell why.

use crate::size::show;
use folioswap_group::counters::{Counter, Gauge};
use folioswap_pager::engine::Engine;
use folioswap_pager::kernel::latency::bucket_end_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, RawFd};
use rustix::io::Errno;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use std::time::{Duration, Instant};

/// The time between two looks, while anything happens.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks at most, when nothing has happened for long.
const INTERVAL_MOST: Duration = Duration::from_secs(16);
/// By how much thrashing time has to outweigh other time before the notice is written.
const NOTICE_AFTER: Duration = Duration::from_secs(10);
/// The time that a fault takes before the engine learns of it and after it is served: the trap, and
/// two changes of threads. (A touch takes 14 us, of which the engine sees 5 to 6.)
const OUTSIDE_NS: u64 = 8_000;

/// Whether the library may write a line to standard error.
///
/// ```
/// use folioswap::{Notices, Swap};
///
/// let swap = Swap::builder().limit("64M").build()?;
/// swap.set_notices(Notices::Silent);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notices {
    /// One line to standard error when the program has been thrashing for ten seconds (longer, with
    /// pauses), once for a swap.
    #[default]
    Stderr,
    /// No line; the figure `thrashing_ms` of [`crate::Statistics`] tells.
    Silent,
}

/// The thrashing of a swap.
#[derive(Default)]
pub(crate) struct Thrashing {
    total_ms: AtomicU64,
    is_silent: AtomicBool,
    is_told: AtomicBool,
}

impl Thrashing {
    /// Returns how long the swap has been thrashing, in milliseconds.
    pub(crate) fn total_ms(&self) -> u64 {
        self.total_ms.load(Relaxed)
    }

    pub(crate) fn set_notices(&self, notices: Notices) {
        self.is_silent.store(notices == Notices::Silent, Relaxed);
    }

    /// Takes the right to write the notice, which only one caller gets.
    fn takes_notice(&self) -> bool {
        !self.is_silent.load(Relaxed) && !self.is_told.swap(true, AcqRel)
    }
}

/// Figures that only grow.
#[derive(Clone, Copy, Default)]
struct Sample {
    /// Faults that read a device.
    major: u64,
    /// All faults.
    faults: u64,
    /// The time that threads have waited for them, in nanoseconds.
    waited_ns: u64,
}

impl Sample {
    fn of(engine: &Engine) -> Self {
        let counts = engine.latency().counts();
        Sample {
            major: engine.published().counter(Counter::MajorFaults),
            faults: counts.iter().sum(),
            waited_ns: counts
                .iter()
                .enumerate()
                .map(|(bucket, &count)| count * (bucket_end_ns(bucket) + OUTSIDE_NS))
                .sum(),
        }
    }

    fn since(self, before: Sample) -> Sample {
        Sample {
            major: self.major.saturating_sub(before.major),
            faults: self.faults.saturating_sub(before.faults),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
        }
    }

    /// Returns whether these are the figures of a time of thrashing: threads have waited for half
    /// of it or more, and most of their faults were for pages that had left. First touches wait
    /// too, while other pages leave, and are no thrashing.
    fn is_thrashing(self, took: Duration) -> bool {
        self.waited_ns >= took.as_nanos() as u64 / 2 && self.major > self.faults / 2
    }
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// Nothing was awaited.
    Idle,
    /// Threads worked, and waited little.
    Working,
    /// They have been thrashing, altogether for so much longer than they worked since then.
    Thrashing(Duration),
}

/// The looks at one engine.
#[derive(Default)]
struct Looks {
    before: Sample,
    /// Thrashing time less the other time since then.
    balance: Duration,
}

impl Looks {
    fn look(&mut self, now: Sample, took: Duration) -> Finding {
        let change = now.since(self.before);
        self.before = now;
        if change.is_thrashing(took) {
            self.balance += took;
            return Finding::Thrashing(self.balance);
        }
        self.balance = self.balance.saturating_sub(took);
        if change.faults == 0 { Finding::Idle } else { Finding::Working }
    }
}

/// Looks at an engine from time to time, from the thread that grants clusters.
pub(crate) struct Watch<'a> {
    engine: &'static Engine,
    thrashing: &'a Thrashing,
    looks: Looks,
    last: Instant,
    interval: Duration,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(engine: &'static Engine, thrashing: &'a Thrashing) -> Self {
        let looks = Looks { before: Sample::of(engine), ..Looks::default() };
        Watch { engine, thrashing, looks, last: Instant::now(), interval: INTERVAL }
    }

    /// Waits until the descriptor can be read, or is closed at the other end, and looks meanwhile.
    /// `limit_bytes` is asked for the notice.
    pub(crate) fn wait(&mut self, descriptor: RawFd, limit_bytes: impl Fn() -> u64) {
        // SAFETY: the caller keeps the descriptor open.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        loop {
            let due = self.interval.saturating_sub(self.last.elapsed());
            let timeout = Timespec { tv_sec: due.as_secs() as i64, tv_nsec: i64::from(due.subsec_nanos()) };
            let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
            let result = poll(&mut polled, Some(&timeout));
            if self.last.elapsed() >= self.interval {
                self.look(&limit_bytes);
            }
            match result {
                Ok(0) | Err(Errno::INTR) => {}
                // What is wrong with the descriptor is told by who reads it.
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn look(&mut self, limit_bytes: impl Fn() -> u64) {
        let took = self.last.elapsed();
        self.last = Instant::now();
        match self.looks.look(Sample::of(self.engine), took) {
            Finding::Idle => self.interval = (self.interval * 2).min(INTERVAL_MOST),
            Finding::Working => self.interval = INTERVAL,
            Finding::Thrashing(balance) => {
                self.interval = INTERVAL;
                self.thrashing.total_ms.fetch_add(took.as_millis() as u64, Relaxed);
                if balance >= NOTICE_AFTER && self.thrashing.takes_notice() {
                    let out = self.engine.published().gauge(Gauge::Swapped);
                    write_line(&notice(limit_bytes(), self.engine.managed_bytes() + out));
                }
            }
        }
    }
}

fn notice(limit_bytes: u64, all_bytes: u64) -> String {
    format!(
        "folioswap: for ten seconds this program has spent half of its time or more waiting for memory that had left: it works with more \
         than its limit of {} holds. All that is managed takes {}: raise the limit, or go through the data in order\n",
        show(limit_bytes),
        show(all_bytes)
    )
}

/// Writes to standard error, past the lock that `eprintln!` takes: a thread that holds it may be
/// waiting for the engine.
fn write_line(text: &str) {
    // SAFETY: the bytes are alive. Nobody can be told that standard error is closed.
    let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

#[cfg(test)]
mod tests;

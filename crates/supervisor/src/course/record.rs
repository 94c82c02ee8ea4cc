//! The record of a run for `--report` and `--timeline`: samples, lives of processes, and moments
//! that took long. All of it is bounded, whatever the run does.

use crate::processes::proc;
use folioswap_group::moments::Moment;
use serde::Serialize;
use std::time::Instant;

/// The most samples. When they are reached every other one goes, and the interval doubles.
const SAMPLES_MAX: usize = 2048;
/// The most processes whose lives are kept.
const LIVES_MAX: usize = 4096;
/// The most moments that are kept.
const SLICES_MAX: usize = 200_000;

/// The group at one moment. Sizes are bytes, counts are sums since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Milliseconds since the start of the run.
    pub at_ms: u64,
    /// The charge.
    pub charge: u64,
    /// The limit.
    pub limit: u64,
    /// The compressed store.
    pub store: u64,
    /// What waits in staging.
    pub staging: u64,
    /// The engine's tables.
    pub metadata: u64,
    /// What is swapped out, uncompressed.
    pub swapped: u64,
    /// What no member counts.
    pub unmanaged: u64,
    /// Bytes on shared devices.
    pub file: u64,
    /// Pages written out.
    pub pages_out: u64,
    /// Pages read back.
    pub pages_in: u64,
    /// Nanoseconds that threads waited.
    pub waited_ns: u64,
    /// Nanoseconds of CPU time of the pagers.
    pub pager_ns: u64,
}

/// The life of a member: from its start, or its exec, to its end, or its next exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Life {
    /// The process id.
    pub pid: u32,
    /// The parent's process id.
    pub parent: u32,
    /// The name of the program.
    pub name: String,
    /// Milliseconds since the start of the run.
    pub began_ms: u64,
    /// The same for the end; `None` while it lives.
    pub ended_ms: Option<u64>,
}

/// The kind of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SliceKind {
    /// A thread waited for a page; the detail is the thread.
    Fault,
    /// The evictor was at work; the detail is the number of pages.
    Batch,
    /// A device was taken out of use; the detail is its number.
    Swapoff,
}

/// A moment that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// The kind.
    pub kind: SliceKind,
    /// The process.
    pub pid: u32,
    /// Microseconds since the start of the run.
    pub at_us: u64,
    /// Microseconds that it took.
    pub took_us: u64,
    /// What it is for the kind.
    pub detail: u32,
}

/// The record.
pub struct Record {
    started: Instant,
    /// The start of the run in nanoseconds of CLOCK_MONOTONIC.
    started_ns: u64,
    interval_ms: u64,
    next_ms: u64,
    /// The samples, in order of time.
    pub samples: Vec<Sample>,
    /// The lives, in order of their beginning.
    pub lives: Vec<Life>,
    /// The moments, as they were found.
    pub slices: Vec<Slice>,
    /// Moments and lives that were not kept.
    pub not_kept: u64,
}

/// CLOCK_MONOTONIC in nanoseconds, as members give it.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Record {
    /// The record of a run that began at this moment.
    pub fn new(started: Instant) -> Self {
        let passed = started.elapsed().as_nanos() as u64;
        Record {
            started,
            started_ns: monotonic_ns().saturating_sub(passed),
            interval_ms: 20,
            next_ms: 0,
            samples: Vec::new(),
            lives: Vec::new(),
            slices: Vec::new(),
            not_kept: 0,
        }
    }

    /// Whether the next sample is due.
    pub fn is_due(&self) -> bool {
        self.now_ms() >= self.next_ms
    }

    /// Milliseconds since the start of the run.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Adds a sample.
    pub fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
        if self.samples.len() >= SAMPLES_MAX {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.interval_ms *= 2;
        }
        self.next_ms = sample.at_ms + self.interval_ms;
    }

    /// A process has become a member.
    pub fn began(&mut self, pid: u32) {
        if self.lives.len() >= LIVES_MAX {
            self.not_kept += 1;
            return;
        }
        let parent = proc::state_and_parent(pid).map_or(0, |(_, parent)| parent);
        let life = Life { pid, parent, name: proc::name(pid), began_ms: self.now_ms(), ended_ms: None };
        self.lives.push(life);
    }

    /// A member has ended.
    pub fn ended(&mut self, pid: u32) {
        let now_ms = self.now_ms();
        if let Some(life) = self.lives.iter_mut().rfind(|life| life.pid == pid && life.ended_ms.is_none()) {
            life.ended_ms = Some(now_ms);
        }
    }

    /// Adds a moment of a member.
    pub fn slice(&mut self, kind: SliceKind, pid: u32, moment: Moment) {
        let at_us = moment.start_ns.saturating_sub(self.started_ns) / 1000;
        self.push(Slice { kind, pid, at_us, took_us: u64::from(moment.took_us), detail: moment.detail });
    }

    /// Adds a swapoff of device `number` that began then and ends now.
    pub fn swapoff(&mut self, number: u32, began: Instant) {
        let at_us = began.saturating_duration_since(self.started).as_micros() as u64;
        let took_us = began.elapsed().as_micros() as u64;
        self.push(Slice {
            kind: SliceKind::Swapoff,
            pid: std::process::id(),
            at_us,
            took_us,
            detail: number,
        });
    }

    fn push(&mut self, slice: Slice) {
        if self.slices.len() < SLICES_MAX {
            self.slices.push(slice);
        } else {
            self.not_kept += 1;
        }
    }

    /// Counts moments that were overwritten before they were read.
    pub fn lost(&mut self, moments: u64) {
        self.not_kept = self.not_kept.saturating_add(moments);
    }
}

#[cfg(test)]
mod tests;

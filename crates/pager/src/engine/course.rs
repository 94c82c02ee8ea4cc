//! The course of a run: what the threads of this process tell of how long things took
//! (`folioswap_group::moments`).

use crate::engine::Engine;
use folioswap_group::moments::{MOMENT_NS, Moment};

impl Engine {
    /// Counts a fault by the time that it took, and keeps it if that was long. Called by the
    /// handler alone; cost: an addition.
    pub(crate) fn note_latency(&self, start_ns: u64, took_ns: u64, thread: u32) {
        let course = &self.member().course;
        course.latency.add(took_ns);
        if took_ns >= MOMENT_NS {
            course.faults.add(moment(start_ns, took_ns, thread));
        }
    }

    /// Keeps a batch that began then and isolated this many pages, if it took long. Called by the
    /// evictor alone; cost: reading the clock.
    pub(crate) fn note_batch(&self, start_ns: u64, pages: u64) {
        let took_ns = crate::kernel::sys::now_ns().saturating_sub(start_ns);
        if took_ns >= MOMENT_NS {
            self.member().course.batches.add(moment(
                start_ns,
                took_ns,
                pages.min(u64::from(u32::MAX)) as u32,
            ));
        }
    }
}

fn moment(start_ns: u64, took_ns: u64, detail: u32) -> Moment {
    Moment { start_ns, took_us: (took_ns / 1000).min(u64::from(u32::MAX)) as u32, detail }
}

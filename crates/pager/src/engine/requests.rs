//! The requests of the program's threads to the pager threads, without a lock: a thread of the
//! program may fault at any instruction, and a thread that faults while it holds a lock of the
//! pager would wait for the pager for ever.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// The most requests that can wait.
const PLACES: usize = 128;

/// The kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Request {
    /// The range stays resident.
    KeepResident = 1,
    /// The program wants huge pages there.
    HugePages = 2,
    /// The program wants no huge pages there.
    NoHugePages = 3,
    /// The mapping has grown, and is managed up to its new end.
    Grown = 4,
}

#[repr(C)]
struct RequestCell {
    /// 0: free; [`TAKEN`]: being written; else the number of a [`Request`].
    pub(crate) state: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
}

const TAKEN: usize = usize::MAX;

/// The cells. All-zero is "none waits".
#[repr(C)]
pub struct Requests {
    cells: [RequestCell; PLACES],
    /// Counts the rounds in which all cells were looked at.
    rounds: AtomicU32,
}

impl Requests {
    /// Leaves a request; false when all cells are taken: the caller tries again.
    pub fn post(&self, request: Request, start: usize, end: usize) -> bool {
        for place in &self.cells {
            if place.state.compare_exchange(0, TAKEN, Acquire, Relaxed).is_ok() {
                place.start.store(start, Relaxed);
                place.end.store(end, Relaxed);
                place.state.store(request as usize, Release);
                return true;
            }
        }
        false
    }

    /// Passes all requests that are complete to `each`, and frees their cells.
    pub fn take(&self, mut each: impl FnMut(Request, usize, usize)) {
        for place in &self.cells {
            let request = match place.state.load(Acquire) {
                1 => Request::KeepResident,
                2 => Request::HugePages,
                3 => Request::NoHugePages,
                4 => Request::Grown,
                _ => continue,
            };
            each(request, place.start.load(Relaxed), place.end.load(Relaxed));
            place.state.store(0, Release);
        }
        self.rounds.fetch_add(1, Release);
    }

    /// How often the cells were looked at. A request that was left before is followed when two more
    /// rounds have ended: the first may have passed its cell already.
    pub fn rounds(&self) -> u32 {
        self.rounds.load(Acquire)
    }

    /// The word of [`Requests::rounds`], for a thread that waits a moment for it to change. Nobody
    /// wakes that thread.
    pub fn rounds_word(&self) -> &AtomicU32 {
        &self.rounds
    }
}

#[cfg(test)]
mod tests;

//! The ranges that were unmapped last, so that no fault is served on a mapping that is gone.
//!
//! A fault may have been served along with another one when its own turn comes: its thread went on,
//! and unmapped the memory. The kernel (6.18) fills a page wherever any userfaultfd is registered,
//! not only its own. By then the address may be that of another engine's region, or of memory that
//! the program serves itself, and zeroes would come there in place of what is swapped out.

use crate::fault::handler::Handler;
use crate::fault::queue::Fault;
use crate::kernel::ranges::Range;
use crate::units::PageAddr;

/// The ranges that are kept.
const KEPT: usize = 16;

/// So many ranges had been unmapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before any range was unmapped.
    pub(crate) const FIRST: Moment = Moment(0);
}

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// It was not unmapped.
    StillThere,
    /// It was unmapped; something else may lie there.
    Gone,
    /// More ranges were unmapped than are kept.
    Unknown,
}

/// The last ranges, each at its number modulo [`KEPT`].
pub(crate) struct Unmapped {
    ranges: [Range; KEPT],
    count: u64,
}

impl Unmapped {
    pub(crate) const fn new() -> Self {
        Unmapped { ranges: [Range { start: 0, end: 0 }; KEPT], count: 0 }
    }

    /// The present moment, for a fault that is read now.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.count)
    }

    /// Records that a range is not mapped any more.
    pub(crate) fn note(&mut self, start: usize, end: usize) {
        self.ranges[self.count as usize % KEPT] = Range { start, end };
        self.count += 1;
    }

    /// Forgets which ranges were unmapped: of what is remembered now, nothing is known later.
    pub(crate) fn forget_all(&mut self) {
        self.count += KEPT as u64 + 1;
    }

    /// Whether the page was unmapped since then.
    pub(crate) fn since(&self, page: PageAddr, then: Moment) -> Since {
        if self.count - then.0 > KEPT as u64 {
            return Since::Unknown;
        }
        let is_in = |number: u64| {
            let Range { start, end } = self.ranges[number as usize % KEPT];
            (start..end).contains(&page.raw())
        };
        if (then.0..self.count).any(is_in) { Since::Gone } else { Since::StillThere }
    }
}

impl Handler {
    /// Whether nothing must come to the page of this fault, because it was unmapped after the fault
    /// was read. Where so much was unmapped since that nothing is known of it, the page is served
    /// if it is registered here now. A thread that still waits for a page that is gone must be
    /// woken: it faults anew.
    pub(crate) fn is_gone(&self, fault: &Fault) -> bool {
        match self.unmapped.since(fault.page, fault.read_at) {
            Since::StillThere => false,
            Since::Gone => true,
            Since::Unknown => self.engine.registered_around(fault.page).is_none(),
        }
    }
}

#[cfg(test)]
mod tests;

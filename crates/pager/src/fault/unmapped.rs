//! The ranges that were unmapped last, so that no fault is served on a mapping that is gone.
//!
//! A fault may have been served along with another one when its own turn comes: its thread went on,
//! and unmapped the memory. The kernel (6.18) fills a page wherever any userfaultfd is registered,
//! not only its own. By then the address may be that of another engine's region, or of memory that
//! the program serves itself, and zeroes would come there in place of what is swapped out.

use crate::kernel::ranges::Range;
use crate::units::PageAddr;

/// The ranges that are kept. A fault that is older than all of them is taken for one on a mapping
/// that is gone: if its thread still waits, it faults anew.
const KEPT: usize = 16;

/// So many ranges had been unmapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before any range was unmapped.
    pub(crate) const FIRST: Moment = Moment(0);
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

    /// Whether the page was unmapped since then, or may have been.
    pub(crate) fn is_gone(&self, page: PageAddr, since: Moment) -> bool {
        self.count - since.0 > KEPT as u64
            || (since.0..self.count).any(|number| {
                let Range { start, end } = self.ranges[number as usize % KEPT];
                (start..end).contains(&page.raw())
            })
    }
}

#[cfg(test)]
mod tests;

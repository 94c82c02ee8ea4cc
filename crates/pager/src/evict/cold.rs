//! Ranges that the program advised to be cold (MADV_COLD), the last sixteen of them: their pages
//! leave before any that the clock meets.

use crate::kernel::ranges::Range;

const RANGES: usize = 16;

/// The ranges, the oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColdRanges {
    ranges: [Range; RANGES],
    count: usize,
}

impl ColdRanges {
    pub(crate) const NONE: Self = ColdRanges { ranges: [Range { start: 0, end: 0 }; RANGES], count: 0 };

    /// Adds a range. One that begins where the last one ended becomes part of it; where there are
    /// too many the oldest is forgotten.
    pub(crate) fn add(&mut self, range: Range) {
        if let Some(last) = self.ranges[..self.count].last_mut()
            && (last.start..=last.end).contains(&range.start)
        {
            last.end = last.end.max(range.end);
            return;
        }
        if self.count == RANGES {
            self.end_first();
        }
        self.ranges[self.count] = range;
        self.count += 1;
    }

    /// The range that is looked at now.
    pub(crate) fn first(&self) -> Option<Range> {
        self.ranges[..self.count].first().copied()
    }

    /// Goes on with the first range from `start` on: everything below has been looked at.
    pub(crate) fn go_on_from(&mut self, start: usize) {
        if let Some(first) = self.ranges[..self.count].first_mut() {
            first.start = start;
        }
    }

    /// Drops the first range, of which nothing is left.
    pub(crate) fn end_first(&mut self) {
        if self.count > 0 {
            self.ranges.copy_within(1..self.count, 0);
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests;

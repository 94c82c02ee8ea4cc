//! Ranges that the program has said to be cold (MADV_COLD), the last sixteen of them: their pages leave before anything the clock meets.

use crate::ranges::Range;

const RANGES: usize = 16;

/// The ranges, the one that came first in front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColdRanges {
    ranges: [Range; RANGES],
    count: usize,
}

impl ColdRanges {
    pub(crate) const NONE: Self = ColdRanges { ranges: [Range { start: 0, end: 0 }; RANGES], count: 0 };

    /// Adds one. What goes on where the last one ended becomes part of it; where there are too many the first is forgotten.
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

    /// The one that is looked at now.
    pub(crate) fn first(&self) -> Option<Range> {
        self.ranges[..self.count].first().copied()
    }

    /// Of the first one what lies below `start` has been looked at, or what lies above has not.
    pub(crate) fn go_on_from(&mut self, start: usize) {
        if let Some(first) = self.ranges[..self.count].first_mut() {
            first.start = start;
        }
    }

    /// Nothing is left of the first one.
    pub(crate) fn end_first(&mut self) {
        if self.count > 0 {
            self.ranges.copy_within(1..self.count, 0);
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_and_the_first_of_too_many_is_forgotten() {
        let mut cold = ColdRanges::NONE;
        cold.end_first();
        cold.go_on_from(5);
        assert_eq!(cold.first(), None);
        cold.add(Range { start: 10, end: 20 });
        cold.add(Range { start: 20, end: 30 });
        cold.add(Range { start: 15, end: 25 });
        assert_eq!(cold.first(), Some(Range { start: 10, end: 30 }));
        cold.go_on_from(12);
        for start in 1..RANGES {
            cold.add(Range { start: start * 100, end: start * 100 + 1 });
        }
        assert_eq!(cold.first(), Some(Range { start: 12, end: 30 }));
        cold.add(Range { start: 1, end: 2 });
        assert_eq!(cold.first(), Some(Range { start: 100, end: 101 }));
        for _ in 2..RANGES {
            cold.end_first();
        }
        cold.end_first();
        assert_eq!(cold.first(), Some(Range { start: 1, end: 2 }));
        cold.end_first();
        assert_eq!(cold.first(), None);
    }
}

//! A sorted set of address ranges, in memory that the caller supplies.
//!
//! One thread changes a set at a time; which, its owner says. Others may ask meanwhile by
//! [`Ranges::around`]: a count says whether the set has changed during the look.

use core::cmp::Ordering;
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Most ranges that a set can hold: the kernel's default bound on the mappings of a process. The
/// memory of a set is resident as far as it is used.
pub const RANGES_MAX: usize = 64 << 10;

/// Half-open range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Range {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
}

/// Two words of a range, as they lie in the set.
#[repr(C)]
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// The set: sorted, disjoint, neighbours merged. All-zero memory is the empty set. Whoever calls
/// anything but [`Ranges::around`] must be the only one to change the set meanwhile.
#[repr(C)]
pub struct Ranges {
    count: AtomicUsize,
    /// Odd while the set is being changed.
    changes: AtomicU32,
    ranges: [Place; RANGES_MAX],
}

/// The set is full; the range is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Ranges {
    /// The empty set, for a static.
    pub const fn empty() -> Ranges {
        Ranges {
            count: AtomicUsize::new(0),
            changes: AtomicU32::new(0),
            ranges: [const { Place { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; RANGES_MAX],
        }
    }

    /// Returns the ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> {
        (0..self.len()).map(|index| self.at(index))
    }

    fn len(&self) -> usize {
        self.count.load(Relaxed).min(RANGES_MAX)
    }

    fn at(&self, index: usize) -> Range {
        let Place { start, end } = &self.ranges[index];
        Range { start: start.load(Relaxed), end: end.load(Relaxed) }
    }

    fn set(&self, index: usize, range: Range) {
        let Place { start, end } = &self.ranges[index];
        start.store(range.start, Relaxed);
        end.store(range.end, Relaxed);
    }

    /// The first range for which this is not true; it must be true of some at the beginning alone.
    fn partition_point(&self, is_before: impl Fn(Range) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(self.at(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn first_ending_above(&self, address: usize) -> usize {
        self.partition_point(|range| range.end <= address)
    }

    /// As [`Ranges::next`], for a thread that does not keep others from changing the set: the
    /// answer was true at a moment of the call. Waits while the set is being changed, by `pause`
    /// with the number of the look. Cost: some 30 ns.
    pub fn around(&self, address: usize, mut pause: impl FnMut(u32)) -> Option<Range> {
        for look in 0.. {
            let before = self.changes.load(Acquire);
            let found = self.next(address);
            fence(Acquire);
            if before.is_multiple_of(2) && self.changes.load(Relaxed) == before {
                return found;
            }
            pause(look);
        }
        None
    }

    /// Returns the first range that ends above `address`.
    pub fn next(&self, address: usize) -> Option<Range> {
        let index = self.first_ending_above(address);
        (index < self.len()).then(|| self.at(index))
    }

    /// Whether one range contains all of `start..end`.
    pub fn covers(&self, start: usize, end: usize) -> bool {
        self.next(start).is_some_and(|range| range.start <= start && end <= range.end)
    }

    /// Returns the first address from `address` on that is in no range.
    pub fn next_hole(&self, address: usize) -> usize {
        self.next(address).filter(|range| range.start <= address).map_or(address, |range| range.end)
    }

    /// Adds `start..end`.
    ///
    /// # Errors
    /// [`Full`].
    pub fn insert(&self, start: usize, end: usize) -> Result<(), Full> {
        if start >= end {
            return Ok(());
        }
        let first = self.partition_point(|range| range.end < start);
        let last = self.partition_point(|range| range.start <= end);
        let merged = if first < last {
            Range { start: start.min(self.at(first).start), end: end.max(self.at(last - 1).end) }
        } else {
            Range { start, end }
        };
        self.splice(first, last, &[merged])
    }

    /// Removes `start..end`. A hole in the middle of a range makes two of one.
    ///
    /// # Errors
    /// [`Full`] when there is no space for the hole: nothing is removed.
    pub fn remove(&self, start: usize, end: usize) -> Result<(), Full> {
        let first = self.first_ending_above(start);
        let last = self.partition_point(|range| range.start < end);
        if first >= last || start >= end {
            return Ok(());
        }
        let mut rest = [Range { start: 0, end: 0 }; 2];
        let mut count = 0;
        for range in [
            Range { start: self.at(first).start, end: start },
            Range { start: end, end: self.at(last - 1).end },
        ] {
            if range.start < range.end {
                rest[count] = range;
                count += 1;
            }
        }
        self.splice(first, last, &rest[..count])
    }

    /// Removes `start..end`. When there is no space for the hole, the complete range around it is
    /// removed.
    ///
    /// This is for a set of ranges with a known property: it may forget some of them, but must
    /// never hold one that has lost the property.
    pub fn forget(&self, start: usize, end: usize) {
        if self.remove(start, end).is_err()
            && let Some(around) = self.next(start)
        {
            let _ = self.remove(around.start, around.end);
        }
    }

    /// Makes the set empty in a process that has a copy of it, perhaps one that was being changed.
    pub fn forget_all(&self) {
        self.count.store(0, Relaxed);
        self.changes.store(0, Release);
    }

    /// Removes all ranges.
    pub fn clear(&self) {
        self.change(|| self.count.store(0, Relaxed));
    }

    fn splice(&self, first: usize, last: usize, with: &[Range]) -> Result<(), Full> {
        let before = self.len();
        let count = before - (last - first) + with.len();
        if count > RANGES_MAX {
            return Err(Full);
        }
        let moved = |index: usize| self.set(index + first + with.len() - last, self.at(index));
        self.change(|| {
            match (first + with.len()).cmp(&last) {
                Ordering::Greater => (last..before).rev().for_each(moved),
                Ordering::Less => (last..before).for_each(moved),
                Ordering::Equal => {}
            }
            with.iter().enumerate().for_each(|(index, range)| self.set(first + index, *range));
            self.count.store(count, Relaxed);
        });
        Ok(())
    }

    fn change(&self, change: impl FnOnce()) {
        let before = self.changes.load(Relaxed);
        self.changes.store(before.wrapping_add(1), Relaxed);
        fence(Release);
        change();
        self.changes.store(before.wrapping_add(2), Release);
    }
}

#[cfg(test)]
mod tests;

//! A sorted set of address ranges, in memory that the caller supplies.

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

/// The set: sorted, disjoint, neighbours merged. All-zero memory is the empty set. Not
/// synchronised.
#[repr(C)]
pub struct Ranges {
    count: usize,
    ranges: [Range; RANGES_MAX],
}

/// The set is full; the range is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Ranges {
    /// Returns the ranges, ascending.
    pub fn as_slice(&self) -> &[Range] {
        &self.ranges[..self.count]
    }

    fn first_ending_above(&self, address: usize) -> usize {
        self.as_slice().partition_point(|range| range.end <= address)
    }

    /// Returns the first range that ends above `address`.
    pub fn next(&self, address: usize) -> Option<Range> {
        self.as_slice().get(self.first_ending_above(address)).copied()
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
    pub fn insert(&mut self, start: usize, end: usize) -> Result<(), Full> {
        if start >= end {
            return Ok(());
        }
        let first = self.as_slice().partition_point(|range| range.end < start);
        let last = self.as_slice().partition_point(|range| range.start <= end);
        let merged = if first < last {
            Range { start: start.min(self.ranges[first].start), end: end.max(self.ranges[last - 1].end) }
        } else {
            Range { start, end }
        };
        self.splice(first, last, &[merged])
    }

    /// Removes `start..end`. A hole in the middle of a range makes two of one.
    ///
    /// # Errors
    /// [`Full`] when there is no space for the hole: nothing is removed.
    pub fn remove(&mut self, start: usize, end: usize) -> Result<(), Full> {
        let first = self.first_ending_above(start);
        let last = self.as_slice().partition_point(|range| range.start < end);
        if first >= last || start >= end {
            return Ok(());
        }
        let mut rest = [Range { start: 0, end: 0 }; 2];
        let mut count = 0;
        for range in [
            Range { start: self.ranges[first].start, end: start },
            Range { start: end, end: self.ranges[last - 1].end },
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
    pub fn forget(&mut self, start: usize, end: usize) {
        if self.remove(start, end).is_err()
            && let Some(around) = self.next(start)
        {
            let _ = self.remove(around.start, around.end);
        }
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    fn splice(&mut self, first: usize, last: usize, with: &[Range]) -> Result<(), Full> {
        let count = self.count - (last - first) + with.len();
        if count > RANGES_MAX {
            return Err(Full);
        }
        self.ranges.copy_within(last..self.count, first + with.len());
        self.ranges[first..first + with.len()].copy_from_slice(with);
        self.count = count;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! The free pages of an arena, and their contents.

use std::collections::{BTreeMap, BTreeSet};

/// The size of the kernel's largest folio. Pieces at least as large begin at a multiple of it where
/// possible.
const BLOCK: usize = 2 << 20;

/// The contents of free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Zeroes that take no memory.
    Zero = 0,
    /// The bytes of a freed piece.
    Left = 1,
}

impl Contents {
    pub(crate) fn other(self) -> Self {
        match self {
            Contents::Zero => Contents::Left,
            Contents::Left => Contents::Zero,
        }
    }
}

/// Free ranges of addresses, in whole pages. Adjacent ranges of equal contents are one range.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    by_start: BTreeMap<usize, (usize, Contents)>,
    /// Pairs (length, start), in one set for each [`Contents`].
    by_length: [BTreeSet<(usize, usize)>; 2],
    bytes: [usize; 2],
}

impl Extents {
    /// Returns the free bytes of these contents.
    pub(crate) fn bytes(&self, contents: Contents) -> usize {
        self.bytes[contents as usize]
    }

    fn add(&mut self, start: usize, length: usize, contents: Contents) {
        if length > 0 {
            self.by_start.insert(start, (length, contents));
            self.by_length[contents as usize].insert((length, start));
            self.bytes[contents as usize] += length;
        }
    }

    fn remove(&mut self, start: usize, length: usize, contents: Contents) {
        self.by_start.remove(&start);
        self.by_length[contents as usize].remove(&(length, start));
        self.bytes[contents as usize] -= length;
    }

    /// Adds a free range.
    pub(crate) fn insert(&mut self, mut start: usize, mut length: usize, contents: Contents) {
        if let Some((&before, &(its, same))) = self.by_start.range(..start).next_back() {
            debug_assert!(before + its <= start, "freed twice");
            if same == contents && before + its == start {
                self.remove(before, its, contents);
                (start, length) = (before, length + its);
            }
        }
        if let Some(&(its, same)) = self.by_start.get(&(start + length))
            && same == contents
        {
            self.remove(start + length, its, contents);
            length += its;
        }
        self.add(start, length, contents);
    }

    /// Takes `length` bytes out of the smallest range of these contents that is large enough.
    pub(crate) fn take(&mut self, length: usize, contents: Contents) -> Option<usize> {
        let &(found, start) = self.by_length[contents as usize].range((length, 0)..).next()?;
        self.remove(start, found, contents);
        let aligned = start.next_multiple_of(BLOCK);
        let at = if length >= BLOCK && aligned + length <= start + found { aligned } else { start };
        self.add(start, at - start, contents);
        self.add(at + length, start + found - at - length, contents);
        Some(at)
    }

    /// Removes all ranges of these contents, and returns them as (start, length).
    pub(crate) fn drain(&mut self, contents: Contents) -> Vec<(usize, usize)> {
        let all = std::mem::take(&mut self.by_length[contents as usize]);
        self.bytes[contents as usize] = 0;
        let ranges: Vec<_> = all.into_iter().map(|(length, start)| (start, length)).collect();
        for (start, _) in &ranges {
            self.by_start.remove(start);
        }
        ranges
    }
}

#[cfg(test)]
mod tests;

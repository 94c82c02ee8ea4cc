//! Which pages of an arena are free, and what is in them.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a page: the least and the grain of every piece.
pub const PAGE: usize = 4096;
/// What the kernel's largest folio spans: pieces at least as large begin at a multiple of it where that can be.
const BLOCK: usize = 2 << 20;

/// What free pages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Zeroes that take no memory.
    Zero = 0,
    /// What was left there.
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

/// Free ranges of addresses, in whole pages. Neighbours of equal contents are one range.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    by_start: BTreeMap<usize, (usize, Contents)>,
    /// (length, start), one set for each [`Contents`].
    by_length: [BTreeSet<(usize, usize)>; 2],
    bytes: [usize; 2],
}

impl Extents {
    /// Free bytes of these contents.
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

    /// The range is free from now on.
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

    /// Takes `length` bytes out of the smallest range of these contents that has them.
    pub(crate) fn take(&mut self, length: usize, contents: Contents) -> Option<usize> {
        let &(found, start) = self.by_length[contents as usize].range((length, 0)..).next()?;
        self.remove(start, found, contents);
        let aligned = start.next_multiple_of(BLOCK);
        let at = if length >= BLOCK && aligned + length <= start + found { aligned } else { start };
        self.add(start, at - start, contents);
        self.add(at + length, start + found - at - length, contents);
        Some(at)
    }

    /// All ranges of these contents leave: (start, length).
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against an array of pages: nothing is handed out twice, nothing is lost, neighbours are joined.
        #[test]
        fn pages_are_free_or_taken_and_never_both(steps in prop::collection::vec((1_usize..40, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            const PAGES: usize = 256;
            let mut extents = Extents::default();
            let mut free = [Some(Contents::Zero); PAGES];
            let mut taken: Vec<(usize, usize)> = Vec::new();
            extents.insert(0, PAGES * PAGE, Contents::Zero);
            for (pages, flag, index) in steps {
                let contents = if flag { Contents::Left } else { Contents::Zero };
                if index.index(2) == 0 || taken.is_empty() {
                    let run = |wanted| free.windows(pages).any(|run| run.iter().all(|page| *page == Some(wanted)));
                    match extents.take(pages * PAGE, contents) {
                        Some(start) => {
                            let first = start / PAGE;
                            prop_assert!(free[first..first + pages].iter().all(|page| *page == Some(contents)));
                            free[first..first + pages].fill(None);
                            taken.push((first, pages));
                        }
                        None => prop_assert!(!run(contents), "there was room"),
                    }
                } else {
                    let (first, pages) = taken.swap_remove(index.index(taken.len()));
                    extents.insert(first * PAGE, pages * PAGE, contents);
                    free[first..first + pages].fill(Some(contents));
                }
                for contents in [Contents::Zero, Contents::Left] {
                    let count = free.iter().filter(|page| **page == Some(contents)).count();
                    prop_assert_eq!(extents.bytes(contents), count * PAGE);
                }
            }
        }
    }

    #[test]
    fn large_pieces_begin_at_a_huge_page_where_they_can() {
        let mut extents = Extents::default();
        extents.insert(BLOCK, 4 * BLOCK, Contents::Zero);
        assert_eq!(extents.take(PAGE, Contents::Zero), Some(BLOCK));
        assert_eq!(extents.take(BLOCK, Contents::Zero), Some(2 * BLOCK));
        assert_eq!(extents.take(2 * BLOCK, Contents::Zero), Some(3 * BLOCK));
        assert_eq!(extents.take(BLOCK - PAGE, Contents::Zero), Some(BLOCK + PAGE));
        assert_eq!(extents.take(PAGE, Contents::Zero), None);
    }
}

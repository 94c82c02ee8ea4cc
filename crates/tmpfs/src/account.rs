//! What the kernel may hold in its page cache of our files: every page that was handed out to it and not taken back.
//!
//! The kernel does not say when it drops a page, so this is an upper bound. It is kept in chunks of 2 MiB, oldest first, since that is
//! how they are taken back. Pure state, no system calls: [`KernelCache`](crate::kernel_cache::KernelCache) acts by it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Range,
};

/// Pages of a chunk.
pub const CHUNK_PAGES: u64 = 512;
const WORDS: usize = (CHUNK_PAGES / 64) as usize;

/// A chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId {
    /// Number of the inode.
    pub inode: u64,
    /// The file's pages from `chunk * CHUNK_PAGES` on.
    pub chunk: u64,
}

#[derive(Default)]
struct Chunk {
    pages: [u64; WORDS],
    /// Which entry of the order is about it.
    turn: u64,
}

impl Chunk {
    fn count(&self) -> u64 {
        self.pages.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// The pages handed out, by file and age.
#[derive(Default)]
pub struct CacheAccount {
    files: HashMap<u64, BTreeMap<u64, Chunk>>,
    /// Oldest first. Entries whose chunk is gone, or has a newer turn, mean nothing.
    order: VecDeque<(u64, ChunkId)>,
    next_turn: u64,
    pages: u64,
}

impl CacheAccount {
    /// How many pages are handed out, at most.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// May the kernel hold pages of this file?
    pub fn knows(&self, inode: u64) -> bool {
        self.files.contains_key(&inode)
    }

    /// The chunks that a range of a file's pages lies in.
    pub fn chunks_of(inode: u64, pages: Range<u64>) -> impl Iterator<Item = ChunkId> {
        let chunks = pages.start / CHUNK_PAGES..pages.end.div_ceil(CHUNK_PAGES);
        chunks.map(move |chunk| ChunkId { inode, chunk })
    }

    /// Notes that pages are handed out.
    pub fn add(&mut self, inode: u64, pages: Range<u64>) {
        for id in Self::chunks_of(inode, pages.clone()) {
            let start = id.chunk * CHUNK_PAGES;
            let within = pages.start.max(start) - start..pages.end.min(start + CHUNK_PAGES) - start;
            let file = self.files.entry(inode).or_default();
            let (order, turn) = (&mut self.order, &mut self.next_turn);
            let chunk = file.entry(id.chunk).or_insert_with(|| {
                *turn += 1;
                order.push_back((*turn, id));
                Chunk { pages: [0; WORDS], turn: *turn }
            });
            for page in within {
                let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
                self.pages += u64::from(chunk.pages[word] & bit == 0);
                chunk.pages[word] |= bit;
            }
        }
        self.tidy();
    }

    /// Notes that a file has no pages in the cache any more from `page` on: it was truncated, or the kernel has forgotten it.
    pub fn remove_from(&mut self, inode: u64, page: u64) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        let first = page / CHUNK_PAGES;
        let mut rest = file.split_off(&first);
        if let Some(mut chunk) = rest.remove(&first) {
            let before = chunk.count();
            for page in page % CHUNK_PAGES..CHUNK_PAGES {
                chunk.pages[(page / 64) as usize] &= !(1 << (page % 64));
            }
            let kept = chunk.count();
            self.pages -= before - kept;
            if kept > 0 {
                file.insert(first, chunk);
            }
        }
        self.pages -= rest.values().map(Chunk::count).sum::<u64>();
        if file.is_empty() {
            self.files.remove(&inode);
        }
    }

    /// Takes the oldest chunk out that `free` agrees to, to be taken back from the kernel.
    pub fn take_oldest(&mut self, free: impl Fn(ChunkId) -> bool) -> Option<ChunkId> {
        let mut passed = Vec::new();
        let mut found = None;
        while let Some((turn, id)) = self.order.pop_front() {
            if self.turn_of(id) != Some(turn) {
                continue;
            }
            if free(id) {
                self.take(id);
                found = Some(id);
                break;
            }
            passed.push((turn, id));
        }
        // Those passed over stay the oldest.
        passed.into_iter().rev().for_each(|entry| self.order.push_front(entry));
        found
    }

    fn turn_of(&self, id: ChunkId) -> Option<u64> {
        self.files.get(&id.inode)?.get(&id.chunk).map(|chunk| chunk.turn)
    }

    fn take(&mut self, id: ChunkId) {
        let Some(file) = self.files.get_mut(&id.inode) else { return };
        self.pages -= file.remove(&id.chunk).map_or(0, |chunk| chunk.count());
        if file.is_empty() {
            self.files.remove(&id.inode);
        }
    }

    /// Entries of the order that mean nothing stay fewer than those that do.
    fn tidy(&mut self) {
        if self.order.len() < 64
            || self.order.len() < 4 * self.files.values().map(BTreeMap::len).sum::<usize>()
        {
            return;
        }
        let order = std::mem::take(&mut self.order);
        self.order = order.into_iter().filter(|&(turn, id)| self.turn_of(id) == Some(turn)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u64, u64, u64),
        RemoveFrom(u64, u64),
        Take,
        TakeBut(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4_u64, 0..2000_u64, 1..700_u64)
                .prop_map(|(inode, page, count)| Step::Add(inode, page, count)),
            (0..4_u64, 0..2000_u64).prop_map(|(inode, page)| Step::RemoveFrom(inode, page)),
            Just(Step::Take),
            (0..4_u64).prop_map(Step::TakeBut),
        ]
    }

    proptest! {
        #[test]
        fn as_a_set_of_pages(steps in proptest::collection::vec(step(), 0..120)) {
            let mut account = CacheAccount::default();
            let mut pages: BTreeSet<(u64, u64)> = BTreeSet::new();
            let mut age: Vec<ChunkId> = Vec::new();
            for step in steps {
                match step {
                    Step::Add(inode, page, count) => {
                        account.add(inode, page..page + count);
                        pages.extend((page..page + count).map(|page| (inode, page)));
                        for id in CacheAccount::chunks_of(inode, page..page + count) {
                            if !age.contains(&id) {
                                age.push(id);
                            }
                        }
                    }
                    Step::RemoveFrom(inode, page) => {
                        account.remove_from(inode, page);
                        pages.retain(|&(other, at)| other != inode || at < page);
                    }
                    Step::Take | Step::TakeBut(_) => {
                        let kept = if let Step::TakeBut(kept) = step { kept } else { u64::MAX };
                        let free = |id: ChunkId| id.inode != kept;
                        let expected = age.iter().position(|&id| free(id)).map(|at| age.remove(at));
                        prop_assert_eq!(account.take_oldest(free), expected);
                        if let Some(id) = expected {
                            pages.retain(|&(inode, page)| inode != id.inode || page / CHUNK_PAGES != id.chunk);
                        }
                    }
                }
                age.retain(|id| pages.iter().any(|&(inode, page)| inode == id.inode && page / CHUNK_PAGES == id.chunk));
                prop_assert_eq!(account.pages(), pages.len() as u64);
                for inode in 0..4 {
                    prop_assert_eq!(account.knows(inode), pages.iter().any(|&(other, _)| other == inode));
                }
            }
        }
    }

    #[test]
    fn what_means_nothing_does_not_pile_up() {
        let mut account = CacheAccount::default();
        for file in 0..100_000 {
            account.add(file, 0..1);
            account.remove_from(file, 0);
        }
        assert_eq!((account.pages(), account.files.len()), (0, 0));
        assert!(account.order.len() <= 64, "{}", account.order.len());
    }
}

//! The pages of our files that the kernel may hold in its page cache: every page that was handed
//! out and not taken back.
//!
//! The kernel does not report when it drops a page, so this is an upper bound. Pages are counted in
//! chunks of 2 MiB, oldest first, because they are taken back in that order. The account is pure
//! state without system calls; [`KernelCache`](crate::kernel_cache::KernelCache) acts on it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Range,
};

/// The pages of a chunk.
pub const CHUNK_PAGES: u64 = 512;
const WORDS: usize = (CHUNK_PAGES / 64) as usize;

/// Names a chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId {
    /// The number of the inode.
    pub inode: u64,
    /// The chunk's number: its pages begin at `chunk * CHUNK_PAGES`.
    pub chunk: u64,
}

#[derive(Default)]
struct Chunk {
    pages: [u64; WORDS],
    /// The entry of `order` that is about this chunk.
    stamp: u64,
}

impl Chunk {
    fn count(&self) -> u64 {
        self.pages.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Returns the numbers of the chunks that a range of a file's pages lies in.
pub fn chunk_numbers(pages: &Range<u64>) -> Range<u64> {
    pages.start / CHUNK_PAGES..pages.end.div_ceil(CHUNK_PAGES)
}

/// The part of a range of a file's pages that lies in a chunk, counted from the chunk's first page.
fn within(chunk: u64, pages: &Range<u64>) -> Range<u64> {
    let start = chunk * CHUNK_PAGES;
    pages.start.max(start) - start..pages.end.min(start + CHUNK_PAGES) - start
}

/// The bits of a chunk's words that stand for these pages of it.
fn masks(pages: Range<u64>) -> impl Iterator<Item = u64> {
    (0..WORDS as u64).map(move |word| {
        let bits = |page: u64| match page.saturating_sub(word * 64) {
            64.. => u64::MAX,
            bits => (1 << bits) - 1,
        };
        bits(pages.end) & !bits(pages.start)
    })
}

/// The pages handed out, by file and age.
#[derive(Default)]
pub struct CacheAccount {
    files: HashMap<u64, BTreeMap<u64, Chunk>>,
    /// Oldest first. An entry is void if its chunk is gone or has a newer stamp.
    order: VecDeque<(u64, ChunkId)>,
    next_stamp: u64,
    pages: u64,
}

impl CacheAccount {
    /// Returns an upper bound of the pages that the kernel holds.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns whether the kernel may hold pages of this file.
    pub fn knows(&self, inode: u64) -> bool {
        self.files.contains_key(&inode)
    }

    /// Returns the chunks that a range of a file's pages lies in.
    pub fn chunks_of(inode: u64, pages: Range<u64>) -> impl Iterator<Item = ChunkId> {
        chunk_numbers(&pages).map(move |chunk| ChunkId { inode, chunk })
    }

    /// Records that pages are handed out.
    pub fn add(&mut self, inode: u64, pages: Range<u64>) {
        for id in Self::chunks_of(inode, pages.clone()) {
            let file = self.files.entry(inode).or_default();
            let (order, stamp) = (&mut self.order, &mut self.next_stamp);
            let chunk = file.entry(id.chunk).or_insert_with(|| {
                *stamp += 1;
                order.push_back((*stamp, id));
                Chunk { pages: [0; WORDS], stamp: *stamp }
            });
            for (word, mask) in chunk.pages.iter_mut().zip(masks(within(id.chunk, &pages))) {
                self.pages += u64::from((mask & !*word).count_ones());
                *word |= mask;
            }
        }
        self.tidy();
    }

    /// Returns whether the kernel may hold one of these pages.
    pub fn any(&self, inode: u64, pages: &Range<u64>) -> bool {
        let Some(file) = self.files.get(&inode) else { return false };
        file.range(chunk_numbers(pages)).any(|(&number, chunk)| {
            chunk.pages.iter().zip(masks(within(number, pages))).any(|(word, mask)| word & mask != 0)
        })
    }

    /// Records that the kernel holds none of these pages any more: they were taken back, the file
    /// was truncated (to `u64::MAX` then), or the kernel has forgotten it.
    pub fn remove(&mut self, inode: u64, pages: Range<u64>) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        let mut emptied = Vec::new();
        for (&number, chunk) in file.range_mut(chunk_numbers(&pages)) {
            let before = chunk.count();
            for (word, mask) in chunk.pages.iter_mut().zip(masks(within(number, &pages))) {
                *word &= !mask;
            }
            let kept = chunk.count();
            self.pages -= before - kept;
            if kept == 0 {
                emptied.push(number);
            }
        }
        for number in emptied {
            file.remove(&number);
        }
        if file.is_empty() {
            self.files.remove(&inode);
        }
    }

    /// Removes the oldest chunk that `free` accepts, which is then to be taken back from the
    /// kernel.
    pub fn take_oldest(&mut self, free: impl Fn(ChunkId) -> bool) -> Option<ChunkId> {
        let mut passed = Vec::new();
        let mut found = None;
        while let Some((stamp, id)) = self.order.pop_front() {
            if self.stamp_of(id) != Some(stamp) {
                continue;
            }
            if free(id) {
                self.take(id);
                found = Some(id);
                break;
            }
            passed.push((stamp, id));
        }
        // The chunks that were passed over stay the oldest.
        passed.into_iter().rev().for_each(|entry| self.order.push_front(entry));
        found
    }

    fn stamp_of(&self, id: ChunkId) -> Option<u64> {
        self.files.get(&id.inode)?.get(&id.chunk).map(|chunk| chunk.stamp)
    }

    fn take(&mut self, id: ChunkId) {
        let Some(file) = self.files.get_mut(&id.inode) else { return };
        self.pages -= file.remove(&id.chunk).map_or(0, |chunk| chunk.count());
        if file.is_empty() {
            self.files.remove(&id.inode);
        }
    }

    /// Keeps the void entries of `order` fewer than three times the valid ones.
    fn tidy(&mut self) {
        if self.order.len() < 64
            || self.order.len() < 4 * self.files.values().map(BTreeMap::len).sum::<usize>()
        {
            return;
        }
        let order = std::mem::take(&mut self.order);
        self.order = order.into_iter().filter(|&(stamp, id)| self.stamp_of(id) == Some(stamp)).collect();
    }
}

#[cfg(test)]
mod tests;

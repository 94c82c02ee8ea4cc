//! Writes past the page cache (with `--direct`, or `O_DIRECT`), where the kernel may hold pages of
//! the same range for mappings.
//!
//! The kernel drops such pages before it sends the write, but a load or a store of another process
//! may have it read a page again before we have carried the write out. Such a page is *stale*: what
//! was written is not in it, a load would not see it, and a store would make it dirty, so that its
//! write-back puts the old bytes over the new ones. So:
//!
//! * Requests that overlap are served in the order in which they came, where one is a write past
//!   the page cache and the other is of the page cache: a read of pages, or a write-back. (Two of
//!   a kind do not wait for each other.) So a page has all of a write, or nothing of it.
//! * A write that finds, when it is served, that the kernel may hold a page of its range is
//!   answered after the invalidator has taken the range back. Until then its bytes are noted, and
//!   put over each write-back of the range.
//! * A page that the kernel reads after a write was carried out is not stale, and the one before it
//!   is gone. The bytes of the page are noted no longer: what is stored to it now is newer. Nor are
//!   the bytes of a write over which another has written.
//!
//! No request waits here for one that waits for the kernel: what is served only reads or writes
//! contents. (`docs/races.md`, race M1.)

use super::{Inner, Job, KernelCache, Span, overlap};
use crate::{contents, inode::PAGE_SIZE};
use parking_lot::MutexGuard;
use std::{ops::Range, sync::Arc};

/// Names a write past the page cache that was carried out and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId(u64);

/// What is left to do before a write past the page cache is answered.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Nothing.
    Now,
    /// The kernel holds pages of its range: [`KernelCache::after_taking_back`].
    AfterTakingBack(WriteId),
}

/// The side on which a request stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The page cache: it reads pages, or writes them back.
    PageCache,
    /// A write past it.
    Past,
}

/// A request that is served, or waits for those before it.
struct Turn {
    id: u64,
    side: Side,
    inode: u64,
    bytes: Range<u64>,
}

/// The bytes of a write that was carried out and not answered.
struct Noted {
    id: WriteId,
    inode: u64,
    /// The offset of `data` in the file.
    start: u64,
    data: Arc<[u8]>,
    /// The parts that go over a write-back.
    parts: Vec<Range<u64>>,
}

/// The requests that writes past the page cache have to do with.
#[derive(Default)]
pub(super) struct PastWrites {
    /// In the order in which they came.
    turns: Vec<Turn>,
    /// No two have a part in common.
    noted: Vec<Noted>,
    last: u64,
}

impl PastWrites {
    fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether a request that came before has to be served before this one.
    fn must_wait(&self, id: u64) -> bool {
        let Some(at) = self.turns.iter().position(|turn| turn.id == id) else { return false };
        let own = &self.turns[at];
        self.turns[..at].iter().any(|before| {
            before.side != own.side && before.inode == own.inode && overlap(&before.bytes, &own.bytes)
        })
    }

    /// Takes a part of a file out of what is noted.
    fn cut(&mut self, inode: u64, bytes: &Range<u64>) {
        for noted in self.noted.iter_mut().filter(|noted| noted.inode == inode) {
            let left = noted.parts.iter().flat_map(|part| {
                [part.start..part.end.min(bytes.start), part.start.max(bytes.end)..part.end]
            });
            noted.parts = left.filter(|part| part.start < part.end).collect();
        }
    }

    /// Returns the bytes of a write-back with what is noted over them. `None`: nothing is.
    fn over(&self, inode: u64, offset: u64, data: &[u8]) -> Option<Vec<u8>> {
        let bytes = offset..offset + data.len() as u64;
        let mut result = None;
        for noted in self.noted.iter().filter(|noted| noted.inode == inode) {
            for part in noted.parts.iter().filter(|part| overlap(part, &bytes)) {
                let (start, end) = (part.start.max(bytes.start), part.end.min(bytes.end));
                let from = &noted.data[(start - noted.start) as usize..(end - noted.start) as usize];
                let merged = result.get_or_insert_with(|| data.to_vec());
                merged[(start - offset) as usize..(end - offset) as usize].copy_from_slice(from);
            }
        }
        result
    }

    /// Ends what is noted of a write.
    pub(super) fn end(&mut self, id: WriteId) {
        self.noted.retain(|noted| noted.id != id);
    }
}

impl Inner {
    /// Whether the kernel may hold one of these pages, or have changes of one under way to us.
    fn may_hold(&self, inode: u64, pages: &Range<u64>) -> bool {
        let is_taken = |span: &Span| span.inode == inode && overlap(&span.pages, pages);
        self.account.any(inode, pages) || self.current.as_ref().is_some_and(is_taken)
    }
}

impl KernelCache {
    /// Waits until those before have been served. Returns a name for [`Self::end_turn`].
    fn begin_turn(&self, side: Side, inode: u64, bytes: Range<u64>) -> (MutexGuard<'_, Inner>, u64) {
        let mut inner = self.inner.lock();
        let id = inner.past.next_id();
        inner.past.turns.push(Turn { id, side, inode, bytes });
        while inner.past.must_wait(id) {
            self.served.wait(&mut inner);
        }
        (inner, id)
    }

    fn end_turn(&self, mut inner: MutexGuard<'_, Inner>, id: u64) {
        inner.past.turns.retain(|turn| turn.id != id);
        let others = !inner.past.turns.is_empty();
        drop(inner);
        if others {
            self.served.notify_all();
        }
    }

    /// Serves a read of pages by the page cache, after waiting for space: `answer` reads them and
    /// answers.
    pub fn read_pages(&self, inode: u64, pages: Range<u64>, answer: impl FnOnce()) {
        let bytes = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;
        // They are in the account before their contents are read.
        self.hand_out(inode, pages);
        let (mut inner, id) = self.begin_turn(Side::PageCache, inode, bytes.clone());
        inner.past.cut(inode, &bytes);
        drop(inner);
        answer();
        self.end_turn(self.inner.lock(), id);
    }

    /// Carries out the write-back of pages that the kernel held: `write` writes bytes at this
    /// offset, all of them.
    ///
    /// # Errors
    /// That of `write`.
    pub fn write_back<E>(
        &self,
        inode: u64,
        offset: u64,
        data: &[u8],
        write: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = offset..offset + data.len() as u64;
        let (inner, id) = self.begin_turn(Side::PageCache, inode, bytes);
        let merged = inner.past.over(inode, offset, data);
        drop(inner);
        let written = write(merged.as_deref().unwrap_or(data));
        self.end_turn(self.inner.lock(), id);
        written
    }

    /// Carries out a write past the page cache: `write` does it, and returns how many of the bytes
    /// it wrote.
    ///
    /// # Errors
    /// That of `write`.
    pub fn write_past<E>(
        &self,
        inode: u64,
        offset: u64,
        data: &[u8],
        write: impl FnOnce() -> Result<usize, E>,
    ) -> Result<(usize, Answer), E> {
        let (pages, bytes) =
            (contents::pages(offset, data.len() as u64), offset..offset.saturating_add(data.len() as u64));
        let (inner, id) = self.begin_turn(Side::Past, inode, bytes);
        // A page that is read from now on waits for the end of this turn.
        let is_held = inner.may_hold(inode, &pages);
        drop(inner);
        let result = write();
        let noted = result
            .as_ref()
            .ok()
            .filter(|&&written| is_held && written > 0)
            .map(|&written| Arc::from(&data[..written]));
        let mut inner = self.inner.lock();
        let mut answer = Answer::Now;
        if let Ok(written) = result {
            let part = offset..offset + written as u64;
            inner.past.cut(inode, &part);
            if let Some(data) = noted {
                let id = WriteId(id);
                inner.past.noted.push(Noted { id, inode, start: offset, data, parts: vec![part] });
                answer = Answer::AfterTakingBack(id);
            }
        }
        self.end_turn(inner, id);
        result.map(|written| (written, answer))
    }

    /// Calls `then` when the kernel holds no stale page of this write any more: on the invalidator.
    pub fn after_taking_back(&self, id: WriteId, then: impl FnOnce() + Send + 'static) {
        let mut inner = self.inner.lock();
        let noted = inner.past.noted.iter().find(|noted| noted.id == id);
        let span = noted.map(|noted| Span {
            inode: noted.inode,
            pages: contents::pages(noted.start, noted.data.len() as u64),
        });
        match span {
            Some(span) if !inner.stopping => {
                inner.jobs.push_back(Job { span, write: Some(id), then: Box::new(then) });
                self.work.notify_one();
            }
            _ => {
                inner.past.end(id);
                drop(inner);
                then();
            }
        }
    }
}

#[cfg(test)]
mod tests;

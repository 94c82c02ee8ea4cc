//! Writes past the page cache (with `--direct`, or `O_DIRECT`), where the kernel may hold pages of
//! the same range for mappings.
//!
//! The kernel drops such pages before it sends the write, but a load or a store of another process
//! may have it read a page again before we have carried the write out. Such a page is *stale*: what
//! was written is not in it, a load would not see it, and a store would make it dirty, so that its
//! write-back puts the old bytes over the new ones. So:
//!
//! * Requests that overlap are served in the order in which they came, where one is a write and
//!   the other is not. (Two of a kind do not wait for each other.) So a page has all of a write, or
//!   nothing of it.
//! * A write past the page cache that finds, when it is served, that the kernel may hold a page of
//!   its range is answered after the invalidator has taken the range back. Until then the range is
//!   noted: a write-back leaves it out, since the contents there are the write's. (Nothing else
//!   changes them: until the answer the kernel holds the inode's lock.)
//! * A page that the kernel reads after a write was carried out is not stale, and the one before it
//!   is gone. It is noted no longer: what is stored to it now is newer than the write.
//! * A read past the page cache of what is noted is answered after the range was taken back too:
//!   whoever has seen the write in it finds it in a mapping.
//!
//! No request waits here for one that waits for the kernel: what is served only reads or writes
//! contents. (`docs/races.md`, race M1.)

use super::{Inner, Job, KernelCache, Span, overlap};
use crate::{contents, inode::PAGE_SIZE};
use parking_lot::MutexGuard;
use std::ops::Range;

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

/// What decides whether two requests wait for each other: those of different kinds do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// write(2), past the page cache or through it.
    Write,
    /// A read, by the page cache or past it, or a write-back of the page cache.
    Other,
}

/// A request that is served, or waits for those before it.
struct Turn {
    id: u64,
    kind: Kind,
    inode: u64,
    bytes: Range<u64>,
}

/// A write past the page cache that was carried out and not answered.
struct Noted {
    id: WriteId,
    inode: u64,
    /// What was written.
    bytes: Range<u64>,
    /// The parts of it that a write-back leaves out.
    parts: Vec<Range<u64>>,
}

/// The requests that writes past the page cache have to do with.
#[derive(Default)]
pub(super) struct PastWrites {
    /// In the order in which they came.
    turns: Vec<Turn>,
    noted: Vec<Noted>,
    last: u64,
}

/// The pages that a range of bytes lies in.
fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    contents::pages(bytes.start, bytes.end - bytes.start)
}

/// The parts of some ranges that are not in `bytes`.
fn without(parts: &[Range<u64>], bytes: &Range<u64>) -> Vec<Range<u64>> {
    let left = parts
        .iter()
        .flat_map(|part| [part.start..part.end.min(bytes.start), part.start.max(bytes.end)..part.end]);
    left.filter(|part| part.start < part.end).collect()
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
            before.kind != own.kind && before.inode == own.inode && overlap(&before.bytes, &own.bytes)
        })
    }

    fn noted_parts(&self, inode: u64) -> impl Iterator<Item = &Range<u64>> {
        self.noted.iter().filter(move |noted| noted.inode == inode).flat_map(|noted| &noted.parts)
    }

    /// Takes a part of a file out of what is noted.
    fn cut(&mut self, inode: u64, bytes: &Range<u64>) {
        for noted in self.noted.iter_mut().filter(|noted| noted.inode == inode) {
            noted.parts = without(&noted.parts, bytes);
        }
    }

    /// Returns the parts of a range that are not noted.
    fn not_noted(&self, inode: u64, bytes: Range<u64>) -> Vec<Range<u64>> {
        self.noted_parts(inode).fold(vec![bytes], |left, part| without(&left, part))
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
    fn begin_turn(&self, kind: Kind, inode: u64, bytes: Range<u64>) -> (MutexGuard<'_, Inner>, u64) {
        let mut inner = self.inner.lock();
        let id = inner.past.next_id();
        inner.past.turns.push(Turn { id, kind, inode, bytes });
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
        let (mut inner, id) = self.begin_turn(Kind::Other, inode, bytes.clone());
        inner.past.cut(inode, &bytes);
        drop(inner);
        answer();
        self.end_turn(self.inner.lock(), id);
    }

    /// Serves a read past the page cache: `answer` reads and answers.
    pub fn read_past(&self, inode: u64, bytes: Range<u64>, answer: impl FnOnce() + Send + 'static) {
        let (mut inner, id) = self.begin_turn(Kind::Other, inode, bytes.clone());
        if !inner.stopping && inner.past.noted_parts(inode).any(|part| overlap(part, &bytes)) {
            let span = Span { inode, pages: pages_of(&bytes) };
            inner.jobs.push_back(Job { span, write: None, then: Box::new(answer) });
            self.work.notify_one();
        } else {
            drop(inner);
            answer();
            inner = self.inner.lock();
        }
        self.end_turn(inner, id);
    }

    /// Carries out the write-back of pages that the kernel held: `write` writes bytes at an offset,
    /// all of them.
    ///
    /// # Errors
    /// That of `write`.
    pub fn write_back<E>(
        &self,
        inode: u64,
        offset: u64,
        data: &[u8],
        write: impl Fn(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = offset..offset + data.len() as u64;
        let (inner, id) = self.begin_turn(Kind::Other, inode, bytes.clone());
        let parts = inner.past.not_noted(inode, bytes);
        drop(inner);
        let from = |part: &Range<u64>| &data[(part.start - offset) as usize..(part.end - offset) as usize];
        let written = parts.iter().try_for_each(|part| write(part.start, from(part)));
        self.end_turn(self.inner.lock(), id);
        written
    }

    /// Carries out a write through the page cache, whose pages the kernel does not keep locked, and
    /// then waits for space for them.
    ///
    /// # Errors
    /// That of `write`.
    pub fn write_through<T, E>(
        &self,
        inode: u64,
        bytes: Range<u64>,
        write: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let pages = pages_of(&bytes);
        let (inner, id) = self.begin_turn(Kind::Write, inode, bytes);
        drop(inner);
        let result = write();
        self.end_turn(self.inner.lock(), id);
        // The wait is not within the turn: a write-back of the same pages may be what it is for.
        self.hand_out(inode, pages);
        result
    }

    /// Carries out a write past the page cache: `write` does it, and returns how many of the bytes
    /// it wrote.
    ///
    /// # Errors
    /// That of `write`.
    pub fn write_past<E>(
        &self,
        inode: u64,
        bytes: Range<u64>,
        write: impl FnOnce() -> Result<usize, E>,
    ) -> Result<(usize, Answer), E> {
        let (offset, pages) = (bytes.start, pages_of(&bytes));
        let (inner, id) = self.begin_turn(Kind::Write, inode, bytes);
        // A page that is read from now on waits for the end of this turn.
        let is_held = inner.may_hold(inode, &pages);
        drop(inner);
        let result = write();
        let mut inner = self.inner.lock();
        let mut answer = Answer::Now;
        if let Ok(written) = result
            && is_held
            && written > 0
        {
            let (id, bytes) = (WriteId(id), offset..offset + written as u64);
            inner.past.noted.push(Noted { id, inode, bytes: bytes.clone(), parts: vec![bytes] });
            answer = Answer::AfterTakingBack(id);
        }
        self.end_turn(inner, id);
        result.map(|written| (written, answer))
    }

    /// Calls `then` when the kernel holds no stale page of this write any more: on the invalidator.
    pub fn after_taking_back(&self, id: WriteId, then: impl FnOnce() + Send + 'static) {
        let mut inner = self.inner.lock();
        let noted = inner.past.noted.iter().find(|noted| noted.id == id);
        let span = noted.map(|noted| Span { inode: noted.inode, pages: pages_of(&noted.bytes) });
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

//! Writes past the page cache (with `--direct`, or `O_DIRECT`), where the kernel may hold pages of
//! the same range for mappings.
//!
//! The kernel drops such pages before it sends the write, but a load or a store of another process
//! may have it read a page again before we have carried the write out. Such a page is *stale*: what
//! was written is not in it, a load would not see it, and a store would make it dirty, so that its
//! write-back puts the old bytes over the new ones. So a write past the page cache goes as follows:
//!
//! 1. It is noted, with its bytes where the kernel may hold a page of its range.
//! 2. It is carried out.
//! 3. Where the kernel may hold a page of its range now, the invalidator takes the range back
//!    before the write is answered. Until then each write-back of the range is followed by the
//!    bytes again ([`KernelCache::write_back`]).
//!
//! A page that the kernel reads during 2 is noted by [`KernelCache::hand_out`] before its contents
//! are read, so 3 finds it, or it has the new bytes. Its write-back waits for 3, which then has
//! noted the bytes. (`docs/races.md`, race M1.)

use super::{Inner, Job, KernelCache, Span};
use crate::contents;
use std::{ops::Range, sync::Arc};

/// Names a write past the page cache that is under way.
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

struct PastWrite {
    id: WriteId,
    inode: u64,
    bytes: Range<u64>,
    /// `None`: the kernel held no page of the range when the write began.
    data: Option<Arc<[u8]>>,
}

/// Bytes of a file that go over what the kernel wrote back.
struct Overlay {
    data: Arc<[u8]>,
    /// The offset of `data` in the file.
    start: u64,
    /// The part of the file that they go to.
    part: Range<u64>,
}

/// The writes past the page cache that are under way, oldest first.
#[derive(Default)]
pub(super) struct PastWrites {
    under_way: Vec<PastWrite>,
    last: u64,
}

impl PastWrites {
    fn begin(&mut self, inode: u64, bytes: Range<u64>, data: Option<Arc<[u8]>>) -> WriteId {
        self.last += 1;
        let id = WriteId(self.last);
        self.under_way.push(PastWrite { id, inode, bytes, data });
        id
    }

    pub(super) fn end(&mut self, id: WriteId) {
        self.under_way.retain(|write| write.id != id);
    }

    /// The writes to a part of this range.
    fn within(&self, inode: u64, bytes: &Range<u64>) -> impl Iterator<Item = &PastWrite> {
        let overlaps =
            move |write: &&PastWrite| write.bytes.start < bytes.end && bytes.start < write.bytes.end;
        self.under_way.iter().filter(move |write| write.inode == inode).filter(overlaps)
    }

    fn overlays(&self, inode: u64, bytes: &Range<u64>) -> Vec<Overlay> {
        let overlay = |write: &PastWrite| {
            let part = write.bytes.start.max(bytes.start)..write.bytes.end.min(bytes.end);
            write.data.clone().map(|data| Overlay { data, start: write.bytes.start, part })
        };
        self.within(inode, bytes).filter_map(overlay).collect()
    }
}

impl Overlay {
    fn bytes(&self) -> &[u8] {
        &self.data[(self.part.start - self.start) as usize..(self.part.end - self.start) as usize]
    }
}

impl Inner {
    /// Whether the kernel may hold one of these pages, or have changes of one under way to us.
    fn may_hold(&self, inode: u64, pages: &Range<u64>) -> bool {
        let taken = self.current.iter().chain(self.jobs.iter().map(|job| &job.span));
        self.account.any(inode, pages) || taken.into_iter().any(|span| span.shares_chunk(inode, pages))
    }
}

impl KernelCache {
    /// Carries out a write past the page cache: `write` does it, and returns how many of the bytes
    /// it wrote. It must not wait for the kernel's page cache of the mount.
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
        let pages = contents::pages(offset, data.len() as u64);
        let bytes = offset..offset.saturating_add(data.len() as u64);
        let mut order = None;
        let mut inner = self.inner.lock();
        let held = inner.may_hold(inode, &pages);
        if held {
            drop(inner);
            order = Some(self.overlays.lock());
            inner = self.inner.lock();
        }
        let id = inner.past.begin(inode, bytes, held.then(|| data.into()));
        drop(inner);
        let result = write();
        drop(order);
        let mut inner = self.inner.lock();
        let answer = match result {
            Ok(_) if inner.may_hold(inode, &pages) => Answer::AfterTakingBack(id),
            _ => Answer::Now,
        };
        match (&result, &answer) {
            (Ok(written), Answer::AfterTakingBack(_)) => {
                if let Some(noted) = inner.past.under_way.iter_mut().find(|noted| noted.id == id) {
                    noted.bytes.end = offset + *written as u64;
                    noted.data.get_or_insert_with(|| data.into());
                }
            }
            _ => inner.past.end(id),
        }
        drop(inner);
        self.carried_out.notify_all();
        result.map(|written| (written, answer))
    }

    /// Calls `then` when the kernel holds no stale page of this write any more: on the invalidator.
    pub fn after_taking_back(&self, id: WriteId, then: impl FnOnce() + Send + 'static) {
        let mut inner = self.inner.lock();
        let noted = inner.past.under_way.iter().find(|write| write.id == id);
        let span = noted.map(|write| Span {
            inode: write.inode,
            pages: contents::pages(write.bytes.start, write.bytes.end - write.bytes.start),
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

    /// Carries out the write-back of pages that the kernel held: `write` writes bytes at an offset,
    /// all of them. Writes past the page cache that the pages may be older than go over them.
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
        let bytes = offset..offset.saturating_add(data.len() as u64);
        let mut inner = self.inner.lock();
        // Such a write noted no bytes, because the kernel read the pages after it began. It waits
        // for nothing that this thread could do.
        while inner.past.within(inode, &bytes).any(|write| write.data.is_none()) {
            self.carried_out.wait(&mut inner);
        }
        drop(inner);
        let written = write(offset, data);
        // Most have no write past the page cache beside them.
        if self.inner.lock().past.overlays(inode, &bytes).is_empty() {
            return written;
        }
        let _order = self.overlays.lock();
        let overlays = self.inner.lock().past.overlays(inode, &bytes);
        overlays
            .iter()
            .fold(written, |result, overlay| result.and(write(overlay.part.start, overlay.bytes())))
    }
}

#[cfg(test)]
mod tests;

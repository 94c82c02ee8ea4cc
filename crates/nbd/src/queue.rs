//! The order of overlapping writes. A write that has to wait is queued, so that the thread that
//! makes it never waits.
//!
//! Two writes that overlap are not sent at the same time: a server may do them in any order, and
//! one that is sent again must not come after a later one. Writes that overlap begin in the order
//! in which they came.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A range of slots, and the bytes that its write holds in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// 0 for a range that holds no bytes.
    pub(crate) bytes: u64,
}

impl Span {
    fn overlaps(&self, other: &Span) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
    }
}

/// The writes under way and the writes that wait. Pure.
#[derive(Debug)]
struct Writes<T> {
    under_way: Vec<Span>,
    waiting: VecDeque<(Span, T)>,
    bytes: u64,
    bytes_max: u64,
    ended: bool,
}

impl<T> Writes<T> {
    /// Whether a span may begin that comes after the first `before` waiting ones.
    fn can_begin(&self, span: &Span, before: usize) -> bool {
        let fits = self.bytes == 0 || self.bytes + span.bytes <= self.bytes_max;
        fits && !self.under_way.iter().any(|other| other.overlaps(span))
            && !self.waiting.iter().take(before).any(|(other, _)| other.overlaps(span))
    }

    fn begin(&mut self, span: Span) {
        self.under_way.push(span);
        self.bytes += span.bytes;
    }

    /// Returns a write that can begin at once; any other waits.
    fn enter(&mut self, span: Span, write: T) -> Option<T> {
        // A write that began while others wait for memory would overtake them for ever.
        if (span.bytes > 0 && !self.waiting.is_empty()) || !self.can_begin(&span, self.waiting.len()) {
            self.waiting.push_back((span, write));
            return None;
        }
        self.begin(span);
        Some(write)
    }

    fn next(&mut self) -> Option<(Span, T)> {
        let index = (0..self.waiting.len()).find(|&index| self.can_begin(&self.waiting[index].0, index))?;
        let (span, write) = self.waiting.remove(index)?;
        self.begin(span);
        Some((span, write))
    }

    fn leave(&mut self, span: Span) {
        if let Some(index) = self.under_way.iter().position(|other| *other == span) {
            self.under_way.swap_remove(index);
            self.bytes -= span.bytes;
        }
    }
}

/// The queue for several threads.
pub(crate) struct WriteQueue<T> {
    writes: Mutex<Writes<T>>,
    changed: Condvar,
}

impl<T> WriteQueue<T> {
    /// An empty queue. At most this many bytes are under way (or one write, however large).
    pub(crate) fn new(bytes_max: u64) -> Self {
        let writes =
            Writes { under_way: Vec::new(), waiting: VecDeque::new(), bytes: 0, bytes_max, ended: false };
        WriteQueue { writes: Mutex::new(writes), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Writes<T>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a write. One that is returned is under way; any other waits for [`WriteQueue::next`].
    /// Does not block.
    pub(crate) fn enter(&self, span: Span, write: T) -> Option<T> {
        self.lock().enter(span, write)
    }

    /// Takes a range if nothing overlaps with it, neither under way nor waiting; returns whether it
    /// did.
    pub(crate) fn try_take(&self, span: Span) -> bool {
        let mut writes = self.lock();
        let free = writes.can_begin(&span, writes.waiting.len());
        if free {
            writes.begin(span);
        }
        free
    }

    /// Ends a write or a taken range.
    pub(crate) fn leave(&self, span: Span) {
        let mut writes = self.lock();
        writes.leave(span);
        if !writes.waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// The next waiting write that can begin; it is under way then. Blocks until there is one.
    /// `None`: the queue has ended.
    pub(crate) fn next(&self) -> Option<T> {
        let mut writes = self.lock();
        loop {
            if writes.ended {
                return None;
            }
            match writes.next() {
                Some((_, write)) => return Some(write),
                None => writes = self.changed.wait(writes).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Ends the queue: no waiting write begins any more.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;

//! The descriptor of a span, and doubly linked lists of spans.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};

use super::directory::Directory;
use super::geometry::SpanId;

/// The state of a span. The pool's lock protects spans in the first three states, the class's lock
/// those in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SpanState {
    /// Empty, no memory behind it: on the pool's bare list. The initial state (zero).
    Bare = 0,
    /// Empty, memory still behind it: on the pool's resident list.
    Resident = 1,
    /// Empty, on no list: on its way between a class and the pool, or its memory is being given
    /// back.
    Transit = 2,
    /// Has objects and free slots: on the class's list of its fullness.
    Partial = 3,
    /// Every slot taken: on no list.
    Full = 4,
    /// Being emptied by the compactor: on no list; slots may be freed, none is handed out.
    Isolated = 5,
}

/// The descriptor of a span, initially all zero. The fields are atomics because `free` reads the
/// class, and counters are read, without the lock; every change happens under the lock that the
/// state names.
pub(super) struct SpanDesc {
    next: AtomicU32,
    prev: AtomicU32,
    live: AtomicU16,
    carved: AtomicU16,
    free_head: AtomicU16,
    touched_pages: AtomicU16,
    state: AtomicU8,
    class: AtomicU8,
}

const _: () = assert!(size_of::<SpanDesc>() == 20);

impl SpanDesc {
    #[inline]
    pub(super) fn state(&self) -> Option<SpanState> {
        use SpanState::*;
        [Bare, Resident, Transit, Partial, Full, Isolated].get(self.state.load(Relaxed) as usize).copied()
    }

    #[inline]
    pub(super) fn set_state(&self, state: SpanState) {
        self.state.store(state as u8, Relaxed);
    }

    #[inline]
    pub(super) fn class_raw(&self) -> u8 {
        self.class.load(Relaxed)
    }

    /// Makes an empty span belong to a class, with no slot carved.
    pub(super) fn begin(&self, class_raw: u8) {
        self.class.store(class_raw, Relaxed);
        self.live.store(0, Relaxed);
        self.carved.store(0, Relaxed);
        self.free_head.store(0, Relaxed);
    }

    /// Slots taken.
    #[inline]
    pub(super) fn live(&self) -> u16 {
        self.live.load(Relaxed)
    }

    #[inline]
    pub(super) fn set_live(&self, live: u16) {
        self.live.store(live, Relaxed);
    }

    /// Slots handed out at least once since [`begin`](Self::begin); the slots above hold no header.
    #[inline]
    pub(super) fn carved(&self) -> u16 {
        self.carved.load(Relaxed)
    }

    #[inline]
    pub(super) fn set_carved(&self, carved: u16) {
        self.carved.store(carved, Relaxed);
    }

    /// First slot of the free list.
    #[inline]
    pub(super) fn free_head(&self) -> Option<u16> {
        self.free_head.load(Relaxed).checked_sub(1)
    }

    #[inline]
    pub(super) fn set_free_head(&self, slot: Option<u16>) {
        self.free_head.store(slot.map_or(0, |slot| slot + 1), Relaxed);
    }

    /// Pages from the span's start that have been written since its memory was last given back.
    #[inline]
    pub(super) fn touched_pages(&self) -> u16 {
        self.touched_pages.load(Relaxed)
    }

    #[inline]
    pub(super) fn set_touched_pages(&self, pages: u16) {
        self.touched_pages.store(pages, Relaxed);
    }
}

/// A doubly linked list of spans; its links are in the descriptors. Context of every method: the
/// caller holds the lock that protects this list.
pub(super) struct SpanList {
    head: AtomicU32,
    tail: AtomicU32,
    len: AtomicU32,
}

fn index(span: Option<SpanId>) -> u32 {
    span.map_or(0, |span| span.0 + 1)
}

fn span(index: u32) -> Option<SpanId> {
    index.checked_sub(1).map(SpanId)
}

impl SpanList {
    pub(super) const fn new() -> Self {
        Self { head: AtomicU32::new(0), tail: AtomicU32::new(0), len: AtomicU32::new(0) }
    }

    /// Spans on the list. May be read without the lock, as a hint.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }

    #[inline]
    pub(super) fn head(&self) -> Option<SpanId> {
        span(self.head.load(Relaxed))
    }

    #[inline]
    pub(super) fn tail(&self) -> Option<SpanId> {
        span(self.tail.load(Relaxed))
    }

    /// The span behind `at`.
    #[inline]
    pub(super) fn after(directory: &Directory, at: SpanId) -> Option<SpanId> {
        span(directory.span(at)?.next.load(Relaxed))
    }

    pub(super) fn push_head(&self, directory: &Directory, new: SpanId) {
        let Some(desc) = directory.span(new) else { return };
        let old = self.head.load(Relaxed);
        desc.prev.store(0, Relaxed);
        desc.next.store(old, Relaxed);
        match span(old).and_then(|old| directory.span(old)) {
            Some(old) => old.prev.store(new.0 + 1, Relaxed),
            None => self.tail.store(new.0 + 1, Relaxed),
        }
        self.head.store(new.0 + 1, Relaxed);
        self.len.fetch_add(1, Relaxed);
    }

    /// Takes a span off this list, on which it is.
    pub(super) fn remove(&self, directory: &Directory, old: SpanId) {
        let Some(desc) = directory.span(old) else { return };
        let (prev, next) = (span(desc.prev.load(Relaxed)), span(desc.next.load(Relaxed)));
        match prev.and_then(|prev| directory.span(prev)) {
            Some(prev) => prev.next.store(index(next), Relaxed),
            None => self.head.store(index(next), Relaxed),
        }
        match next.and_then(|next| directory.span(next)) {
            Some(next) => next.prev.store(index(prev), Relaxed),
            None => self.tail.store(index(prev), Relaxed),
        }
        desc.prev.store(0, Relaxed);
        desc.next.store(0, Relaxed);
        self.len.fetch_sub(1, Relaxed);
    }

    pub(super) fn pop_head(&self, directory: &Directory) -> Option<SpanId> {
        let head = self.head()?;
        self.remove(directory, head);
        Some(head)
    }
}

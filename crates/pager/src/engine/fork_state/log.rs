//! The events that a fork freeze holds back: they arrived while no page word might change.
//!
//! The handler writes the log; the child finds a copy of it, in which each entry is complete or
//! absent.

use crate::kernel::uffd::Event;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The most events of one freeze; an event that borders on the last one is merged with it.
const LOG: usize = 32 << 10;

/// One event of the freeze. All zero: not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Logged {
    kind: usize,
    a: usize,
    b: usize,
    c: usize,
}

const REMOVED: usize = 1;

const UNMAPPED: usize = 2;

const REMAPPED: usize = 3;

/// The log; all-zero is the empty log.
#[repr(C)]
pub(crate) struct EventLog {
    count: AtomicU32,
    count_at_fork: AtomicU32,
    entries: UnsafeCell<[Logged; LOG]>,
}

/// The log has no space for one more event.
#[derive(Debug)]
pub(crate) struct Full;

impl EventLog {
    /// The number of events in the log.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Acquire) as usize
    }

    /// The number of events that were in the log when the child was made.
    pub(crate) fn len_at_fork(&self) -> usize {
        self.count_at_fork.load(Relaxed) as usize
    }

    /// Records that the child was made: events from now on do not concern it.
    pub(crate) fn log_fork(&self) {
        self.count_at_fork.store(self.count.load(Relaxed), Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.count.store(0, Relaxed);
    }

    /// The event with this number, below [`EventLog::len`].
    pub(crate) fn event(&self, index: usize) -> Event {
        self.entries(index + 1)[index].event()
    }

    /// Writes an event down. For the handler alone, during the freeze.
    ///
    /// # Errors
    /// [`Full`]; nothing is written down.
    pub(crate) fn push(&self, event: Event) -> Result<(), Full> {
        let (kind, a, b, c) = match event {
            Event::Remove { start, end } => (REMOVED, start, end, 0),
            Event::Unmap { start, end } => (UNMAPPED, start, end, 0),
            Event::Remap { from, to, bytes } => (REMAPPED, from, to, bytes),
            Event::Fault { .. } | Event::Fork { .. } | Event::Unknown => return Ok(()),
        };
        let count = self.len();
        if let Some(last) = self.entries(count).last()
            && last.kind == kind
            && kind != REMAPPED
            && last.a <= a
            && b <= last.b
        {
            return Ok(());
        }
        if count == LOG {
            return Err(Full);
        }
        // SAFETY: the handler alone writes the log, during the freeze.
        let entry = unsafe { &mut (&mut (*self.entries.get()))[count] };
        (entry.a, entry.b, entry.c) = (a, b, c);
        core::sync::atomic::fence(Release);
        entry.kind = kind;
        self.count.store(count as u32 + 1, Release);
        Ok(())
    }

    /// The first `limit` events of the log.
    fn entries(&self, limit: usize) -> &[Logged] {
        // SAFETY: entries below the count are written and not changed before the freeze ends.
        unsafe { &(&(*self.entries.get()))[..limit.min(LOG)] }
    }

    /// The address where the words of the page that is now at `address` still stand, found by going
    /// back through the first `limit` events; `None` if the log says that nothing of the page is
    /// left.
    pub(crate) fn before(&self, address: usize, limit: usize) -> Option<usize> {
        let mut address = address;
        for entry in self.entries(limit).iter().rev() {
            match entry.kind {
                REMOVED | UNMAPPED if (entry.a..entry.b).contains(&address) => return None,
                REMAPPED if (entry.b..entry.b + entry.c).contains(&address) => {
                    address = address - entry.b + entry.a
                }
                REMAPPED if (entry.a..entry.a + entry.c).contains(&address) => return None,
                _ => {}
            }
        }
        Some(address)
    }
}

impl Logged {
    fn event(self) -> Event {
        match self.kind {
            REMOVED => Event::Remove { start: self.a, end: self.b },
            UNMAPPED => Event::Unmap { start: self.a, end: self.b },
            REMAPPED => Event::Remap { from: self.a, to: self.b, bytes: self.c },
            _ => Event::Unknown,
        }
    }
}

//! The lists of reclaim: active and inactive folios, by last use.
//!
//! A new folio enters the inactive list. When reclaim comes to a folio that was used since, the
//! folio goes on to the active list; active ones go back as the active list outgrows the other.
//! Taking a folio off requires its exclusive lock, which is tried under the lists' lock: a folio on
//! a list is alive.

use crate::folio::{Folio, Folios, NONE, flag};
use crate::sync::{AtomicU64, Mutex, Relaxed, lock};

#[cfg(test)]
#[path = "lru/tests.rs"]
mod tests;

/// The two lists.
pub(crate) struct Lru {
    lists: Mutex<[List; 2]>,
    pages: [AtomicU64; 2],
    folios: AtomicU64,
}

/// Result of [`Lru::coldest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coldest {
    /// This folio, off the lists and held exclusively.
    Folio(u32),
    /// All folios looked at were used lately or are held: look again.
    NotNow,
    /// The lists are empty.
    None,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

fn list_of(folio: &Folio) -> usize {
    if folio.has(flag::ACTIVE) { ACTIVE } else { INACTIVE }
}

impl Lru {
    pub(crate) fn new() -> Lru {
        let none = List { head: NONE, tail: NONE };
        Lru {
            lists: Mutex::new([none; 2]),
            pages: [const { AtomicU64::new(0) }; 2],
            folios: AtomicU64::new(0),
        }
    }

    /// Folios on both lists.
    pub(crate) fn folios(&self) -> u64 {
        self.folios.load(Relaxed)
    }

    /// Puts a folio at the head of its list, unless it is on one. The caller holds it exclusively.
    pub(crate) fn add(&self, folios: &Folios, frame: u32) {
        let mut lists = lock(&self.lists);
        // Only the lists' lock decides whether the folio is on one: [`Lru::coldest`] moves folios
        // that it does not hold.
        if !folios.of(frame).has(flag::LISTED) {
            self.link(&mut lists, folios, frame);
        }
    }

    /// Takes a folio off, if it is on a list. The caller holds it exclusively.
    pub(crate) fn remove(&self, folios: &Folios, frame: u32) {
        let mut lists = lock(&self.lists);
        if folios.of(frame).has(flag::LISTED) {
            self.unlink(&mut lists, folios, frame);
        }
    }

    /// Takes the coldest folio off that is not held just now; the caller then holds it exclusively.
    /// Looks at `looks` folios at most.
    pub(crate) fn coldest(&self, folios: &Folios, looks: u32) -> Coldest {
        let mut lists = lock(&self.lists);
        for _ in 0..looks {
            let pages = |list: usize| self.pages[list].load(Relaxed);
            let list = if pages(ACTIVE) > pages(INACTIVE) * 2 || lists[INACTIVE].tail == NONE {
                ACTIVE
            } else {
                INACTIVE
            };
            let frame = lists[list].tail;
            if frame == NONE {
                return Coldest::None;
            }
            let folio = folios.of(frame);
            let referenced = folio.has(flag::REFERENCED);
            let free = (list == INACTIVE && !referenced) && folio.try_lock();
            self.unlink(&mut lists, folios, frame);
            if free {
                return Coldest::Folio(frame);
            }
            if list == INACTIVE && referenced {
                folio.set(flag::ACTIVE);
            } else if list == ACTIVE {
                folio.clear(flag::ACTIVE);
            }
            folio.clear(flag::REFERENCED);
            self.link(&mut lists, folios, frame);
        }
        Coldest::NotNow
    }

    fn link(&self, lists: &mut [List; 2], folios: &Folios, frame: u32) {
        let folio = folios.of(frame);
        let list = list_of(folio);
        let head = lists[list].head;
        folio.previous.store(NONE, Relaxed);
        folio.next.store(head, Relaxed);
        match head {
            NONE => lists[list].tail = frame,
            head => folios.of(head).previous.store(frame, Relaxed),
        }
        lists[list].head = frame;
        folio.set(flag::LISTED);
        self.folios.fetch_add(1, Relaxed);
        self.pages[list].fetch_add(folio.order().slots().into(), Relaxed);
    }

    fn unlink(&self, lists: &mut [List; 2], folios: &Folios, frame: u32) {
        let folio = folios.of(frame);
        let list = list_of(folio);
        let (previous, next) = (folio.previous.load(Relaxed), folio.next.load(Relaxed));
        match previous {
            NONE => lists[list].head = next,
            previous => folios.of(previous).next.store(next, Relaxed),
        }
        match next {
            NONE => lists[list].tail = previous,
            next => folios.of(next).previous.store(previous, Relaxed),
        }
        folio.clear(flag::LISTED);
        self.folios.fetch_sub(1, Relaxed);
        self.pages[list].fetch_sub(folio.order().slots().into(), Relaxed);
    }
}

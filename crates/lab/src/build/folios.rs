//! Folios of the modelled group and their LRU list.

use folioswap_slots::{Order, SwapEntry};
use std::cell::Cell;

/// No folio.
const NONE: u32 = u32::MAX;

/// The state of a folio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The number is free.
    Unused,
    /// In memory and in use. With an entry it is *only cached*: the device still has its unchanged
    /// bytes.
    Mapped,
    /// In memory and in the swap cache, not in use: being written out, or read ahead. The slots
    /// have their count.
    Cached,
    /// On the device.
    Swapped,
}

/// 2^order pages of one owner. The allocator's callback changes the `Cell`.
#[derive(Debug)]
pub(super) struct Folio {
    pub(super) owner: u32,
    pub(super) first_page: u32,
    pub(super) order: Order,
    pub(super) state: State,
    pub(super) entry: Cell<Option<SwapEntry>>,
    /// Used since reclaim last passed it.
    pub(super) referenced: bool,
    /// Waits for the end of its write-back.
    pub(super) writeback: bool,
    newer: u32,
    older: u32,
}

impl Folio {
    pub(super) fn pages(&self) -> u32 {
        self.order.slots()
    }
}

/// All folios by number, and the list of those in memory, from newest to oldest.
#[derive(Debug)]
pub(super) struct Folios {
    all: Vec<Folio>,
    unused: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl Folios {
    pub(super) fn new() -> Folios {
        Folios { all: Vec::new(), unused: Vec::new(), newest: NONE, oldest: NONE }
    }

    pub(super) fn get(&self, id: u32) -> &Folio {
        &self.all[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Folio {
        &mut self.all[id as usize]
    }

    pub(super) fn add(&mut self, owner: u32, first_page: u32, order: Order, state: State) -> u32 {
        let folio = Folio {
            owner,
            first_page,
            order,
            state,
            entry: Cell::new(None),
            referenced: false,
            writeback: false,
            newer: NONE,
            older: NONE,
        };
        match self.unused.pop() {
            Some(id) => {
                self.all[id as usize] = folio;
                id
            }
            None => {
                self.all.push(folio);
                (self.all.len() - 1) as u32
            }
        }
    }

    /// Frees the number. Context: the folio is on no list.
    pub(super) fn remove(&mut self, id: u32) {
        self.get_mut(id).state = State::Unused;
        self.unused.push(id);
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn push_newest(&mut self, id: u32) {
        let second = self.newest;
        self.get_mut(id).newer = NONE;
        self.get_mut(id).older = second;
        match second {
            NONE => self.oldest = id,
            second => self.get_mut(second).newer = id,
        }
        self.newest = id;
    }

    pub(super) fn push_oldest(&mut self, id: u32) {
        let second = self.oldest;
        self.get_mut(id).older = NONE;
        self.get_mut(id).newer = second;
        match second {
            NONE => self.newest = id,
            second => self.get_mut(second).older = id,
        }
        self.oldest = id;
    }

    pub(super) fn unlink(&mut self, id: u32) {
        let (newer, older) = (self.get(id).newer, self.get(id).older);
        match newer {
            NONE => self.newest = older,
            newer => self.get_mut(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.get_mut(older).newer = newer,
        }
    }
}

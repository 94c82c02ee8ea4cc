//! The swap list: objects with something in swap space, for who must find the entries of a device (swapoff).

use crate::object::Inner;
use crate::sync::{Mutex, MutexGuard, SeqCst, lock};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The list. An object is on it whenever it has a swap entry.
#[derive(Default)]
pub(crate) struct SwapList(Mutex<HashMap<usize, Weak<Inner>>>);

fn key(inner: &Inner) -> usize {
    std::ptr::from_ref(inner).addr()
}

impl SwapList {
    fn held(&self) -> MutexGuard<'_, HashMap<usize, Weak<Inner>>> {
        lock(&self.0)
    }

    /// `pages` of the object are about to get slots: it is on the list from now on. Costs a lock for the first.
    pub(crate) fn add(&self, inner: &Inner, pages: u64) {
        inner.swapped.fetch_add(pages, SeqCst);
        if !inner.listed.load(SeqCst) {
            let mut list = self.held();
            list.insert(key(inner), inner.weak.clone());
            inner.listed.store(true, SeqCst);
        }
    }

    /// They got none: it goes off the list again, unless it has others.
    pub(crate) fn failed(&self, inner: &Inner, pages: u64) {
        if inner.swapped.fetch_sub(pages, SeqCst) == pages {
            self.prune(inner);
        }
    }

    /// Takes an object off that has nothing in swap space.
    pub(crate) fn prune(&self, inner: &Inner) {
        let mut list = self.held();
        // Said first: who adds pages meanwhile sees it, or is seen.
        inner.listed.store(false, SeqCst);
        if inner.swapped.load(SeqCst) == 0 {
            list.remove(&key(inner));
        } else if list.contains_key(&key(inner)) {
            inner.listed.store(true, SeqCst);
        }
    }

    /// All objects on it. Each may have lost its last entry, or be dropped, by the time it is looked at.
    pub(crate) fn objects(&self) -> Vec<Arc<Inner>> {
        self.held().values().filter_map(Weak::upgrade).collect()
    }

    /// Is an object on it?
    #[cfg(test)]
    pub(crate) fn has(&self, inner: &Inner) -> bool {
        self.held().contains_key(&key(inner))
    }
}

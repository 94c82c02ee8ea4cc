//! The swap list: objects with pages in swap space. swapoff finds the entries of a device by it.

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

    /// Puts the object on the list, because `pages` of it are about to get slots. Cost: a lock for
    /// the first of them.
    pub(crate) fn add(&self, inner: &Inner, pages: u64) {
        inner.swapped.fetch_add(pages, SeqCst);
        if !inner.listed.load(SeqCst) {
            let mut list = self.held();
            list.insert(key(inner), inner.weak.clone());
            inner.listed.store(true, SeqCst);
        }
    }

    /// Takes the object off again after its `pages` got no slots, unless it has others in swap.
    pub(crate) fn failed(&self, inner: &Inner, pages: u64) {
        if inner.swapped.fetch_sub(pages, SeqCst) == pages {
            self.prune(inner);
        }
    }

    /// Takes an object off that has nothing in swap space.
    pub(crate) fn prune(&self, inner: &Inner) {
        let mut list = self.held();
        // The flag falls before the count is read: an `add` meanwhile sees the flag, or its pages
        // are seen here.
        inner.listed.store(false, SeqCst);
        if inner.swapped.load(SeqCst) == 0 {
            list.remove(&key(inner));
        } else if list.contains_key(&key(inner)) {
            inner.listed.store(true, SeqCst);
        }
    }

    /// All objects on the list. Each may have lost its last entry, or be dropped, by the time the
    /// caller looks at it.
    pub(crate) fn objects(&self) -> Vec<Arc<Inner>> {
        self.held().values().filter_map(Weak::upgrade).collect()
    }

    /// Whether an object is on the list.
    #[cfg(test)]
    pub(crate) fn has(&self, inner: &Inner) -> bool {
        self.held().contains_key(&key(inner))
    }
}

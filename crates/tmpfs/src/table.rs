//! The inodes that the kernel knows, by number.
//!
//! The kernel counts how often it was told of an inode (lookup, create, link, readdirplus, ...),
//! and sends how many of these lookups it forgets. The first lookup puts an inode into this table,
//! and the last forget removes it, both under the lock of its attributes.

use crate::inode::Inode;
use fuser::FileAttr;
use parking_lot::RwLock;
use std::{collections::HashMap, sync::Arc};

/// The number of locks that inodes are distributed over, by number.
const SHARDS: usize = 32;

/// All inodes that the kernel knows.
pub struct InodeTable {
    shards: [RwLock<HashMap<u64, Arc<Inode>>>; SHARDS],
}

impl InodeTable {
    /// Makes an empty table.
    pub fn new() -> Self {
        InodeTable { shards: std::array::from_fn(|_| RwLock::default()) }
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Inode>>> {
        &self.shards[(number % SHARDS as u64) as usize]
    }

    /// Returns the inode of this number, if the kernel knows it.
    pub fn get(&self, number: u64) -> Option<Arc<Inode>> {
        self.shard(number).read().get(&number).cloned()
    }

    /// Counts a lookup of an inode. Returns its attributes of that moment.
    pub fn remember(&self, inode: &Arc<Inode>) -> FileAttr {
        let mut state = inode.state();
        state.lookups += 1;
        if state.lookups == 1 {
            self.shard(inode.number).write().insert(inode.number, Arc::clone(inode));
        }
        inode.attributes_of(&state)
    }

    /// Counts that the kernel forgets `lookups` lookups of an inode. Calls `last` where it no
    /// longer knows the inode: before anybody can look it up again.
    pub fn forget(&self, number: u64, lookups: u64, last: impl FnOnce()) {
        let Some(inode) = self.get(number) else { return };
        let mut state = inode.state();
        state.lookups = state.lookups.saturating_sub(lookups);
        if state.lookups > 0 {
            return;
        }
        // The inode is dropped with `inode`, after the lock.
        if self.shard(number).write().remove(&number).is_some() {
            last();
        }
        drop(state);
    }

    /// Returns how many inodes the kernel knows.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }
}

#[cfg(test)]
mod tests;

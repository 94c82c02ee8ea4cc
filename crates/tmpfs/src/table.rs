//! The inodes that the kernel knows, by number.
//!
//! The kernel counts how often it was told of an inode (lookup, create, link, readdirplus, ...) and says how many of these it forgets.
//! The first telling puts an inode in here, the last forgetting takes it out, both under the lock of its attributes.

use crate::inode::Inode;
use fuser::FileAttr;
use parking_lot::RwLock;
use std::{collections::HashMap, sync::Arc};

/// Locks that inodes are spread over by number.
const SHARDS: usize = 32;

/// All inodes that the kernel knows.
pub struct InodeTable {
    shards: [RwLock<HashMap<u64, Arc<Inode>>>; SHARDS],
}

impl InodeTable {
    /// Empty.
    pub fn new() -> Self {
        InodeTable { shards: std::array::from_fn(|_| RwLock::default()) }
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Inode>>> {
        &self.shards[(number % SHARDS as u64) as usize]
    }

    /// The inode of this number, if the kernel knows it.
    pub fn get(&self, number: u64) -> Option<Arc<Inode>> {
        self.shard(number).read().get(&number).cloned()
    }

    /// Counts that the kernel is told of an inode; returns its attributes at that moment.
    pub fn remember(&self, inode: &Arc<Inode>) -> FileAttr {
        let mut state = inode.state();
        state.lookups += 1;
        if state.lookups == 1 {
            self.shard(inode.number).write().insert(inode.number, Arc::clone(inode));
        }
        inode.attributes_of(&state)
    }

    /// Counts that the kernel forgets `lookups` tellings of an inode. `true` when it knows it no more.
    pub fn forget(&self, number: u64, lookups: u64) -> bool {
        let Some(inode) = self.get(number) else { return false };
        let mut state = inode.state();
        state.lookups = state.lookups.saturating_sub(lookups);
        if state.lookups > 0 {
            return false;
        }
        // The inode goes with `inode`, after the lock.
        let removed = self.shard(number).write().remove(&number);
        drop(state);
        removed.is_some()
    }

    /// How many the kernel knows.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        inode::Content,
        limits::{Inodes, Memory},
    };
    use fuser::FileType;

    #[test]
    fn an_inode_lives_until_it_is_forgotten_as_often_as_it_was_told() {
        let (table, inodes) = (InodeTable::new(), Inodes::new(10, Memory::default()));
        let reservation = inodes.reserve().expect("room");
        let inode = Arc::new(Inode::new(7, Content::Node(FileType::Socket), 0, (0, 0), 0, reservation));
        for _ in 0..3 {
            table.remember(&inode);
        }
        drop(inode);
        assert!(!table.forget(7, 2));
        assert_eq!((table.len(), inodes.used()), (1, 1));
        assert!(table.forget(7, 1));
        assert_eq!((table.len(), inodes.used()), (0, 0));
        assert!(!table.forget(7, 1), "forgetting what is not known does nothing");
    }

    #[test]
    fn threads_that_look_up_and_forget_leave_nothing() {
        let (table, inodes) = (InodeTable::new(), Inodes::new(10, Memory::default()));
        let reservation = inodes.reserve().expect("room");
        // A name holds it.
        let named = Arc::new(Inode::new(7, Content::Node(FileType::Socket), 0, (0, 0), 0, reservation));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        table.remember(&named);
                        assert!(table.get(7).is_some(), "whoever was told of it finds it");
                        table.forget(7, 1);
                    }
                });
            }
        });
        assert_eq!(table.len(), 0);
        drop(named);
        assert_eq!(inodes.used(), 0);
    }
}

//! How many inodes there may be, and the memory that they take. (Pages of contents are counted where they are, by the shmem space.)

use folioswap_shmem::ShmemSpace;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What an inode takes of the memory limit, its name and its place in the tables with it, in bytes: measured with small files (see
/// `docs/tmpfs.md`).
pub const INODE_MEMORY: u64 = 640;

/// The inodes of a file system, counted.
#[derive(Debug)]
pub struct Inodes {
    used: AtomicU64,
    max: u64,
    /// Whose limit their memory counts towards.
    space: Option<Arc<ShmemSpace>>,
}

/// The place of one inode; dropping it gives it back.
#[derive(Debug)]
pub struct InodeReservation(Arc<Inodes>);

impl Inodes {
    /// At most `max`, the root included.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Inodes { used: AtomicU64::new(0), max, space: None })
    }

    /// The same, of a file system whose contents are in this space.
    pub fn within(max: u64, space: &Arc<ShmemSpace>) -> Arc<Self> {
        Arc::new(Inodes { used: AtomicU64::new(0), max, space: Some(Arc::clone(space)) })
    }

    /// A place for one more; `None` when all are used.
    pub fn reserve(self: &Arc<Self>) -> Option<InodeReservation> {
        let more = |used| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Relaxed, Relaxed, more).ok()?;
        if let Some(space) = &self.space {
            space.charge_outside(INODE_MEMORY);
        }
        Some(InodeReservation(Arc::clone(self)))
    }

    /// How many there are.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// How many there can be.
    pub fn max(&self) -> u64 {
        self.max
    }
}

impl Drop for InodeReservation {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
        if let Some(space) = &self.0.space {
            space.uncharge_outside(INODE_MEMORY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_once_and_comes_back() {
        let inodes = Inodes::new(2);
        let first = inodes.reserve().expect("one");
        let second = inodes.reserve().expect("two");
        assert!(inodes.reserve().is_none());
        drop(first);
        assert_eq!(inodes.used(), 1);
        assert!(inodes.reserve().is_some());
        drop(second);
        assert_eq!(inodes.used(), 0);
    }
}

//! How many inodes there may be. (How many pages is counted where they are, by the shmem space.)

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The inodes of a file system, counted.
#[derive(Debug)]
pub struct Inodes {
    used: AtomicU64,
    max: u64,
}

/// The place of one inode; dropping it gives it back.
#[derive(Debug)]
pub struct InodeReservation(Arc<Inodes>);

impl Inodes {
    /// At most `max`, the root included.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Inodes { used: AtomicU64::new(0), max })
    }

    /// A place for one more; `None` when all are used.
    pub fn reserve(self: &Arc<Self>) -> Option<InodeReservation> {
        let more = |used| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Relaxed, Relaxed, more).ok()?;
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

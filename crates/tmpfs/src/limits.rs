//! How many inodes there may be, and the memory that they and their names take. (Pages of contents are counted where they are, by the shmem
//! space.)

use folioswap_shmem::ShmemSpace;
use rustix::io::Errno;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What an inode takes of the memory limit, its place in the tables with it, in bytes. With [`ENTRY_MEMORY`] more than was measured with small
/// files (see `docs/tmpfs.md`).
pub const INODE_MEMORY: u64 = 480;
/// What a name takes besides its own length: its places in the two tables of the directory, as full as they are at the least.
pub const ENTRY_MEMORY: u64 = 192;
/// What a directory takes besides: tables with room for the first names.
pub const DIRECTORY_MEMORY: u64 = 768;
/// What an extended attribute takes besides its name and value: the first one of an inode has a table for eleven.
pub const XATTR_MEMORY: u64 = 640;

/// What memory counts towards.
#[derive(Clone, Debug, Default)]
pub struct Memory(Option<Arc<ShmemSpace>>);

/// Memory that was counted; dropping it takes it back.
#[derive(Debug)]
pub struct Charge {
    memory: Memory,
    bytes: u64,
}

impl Memory {
    /// The limit of this space.
    pub fn within(space: &Arc<ShmemSpace>) -> Self {
        Memory(Some(Arc::clone(space)))
    }

    /// Counts so many bytes. Not under a lock: contents may have to leave first.
    ///
    /// # Errors
    /// `ENOSPC`: there is no room.
    pub fn charge(&self, bytes: u64) -> Result<Charge, Errno> {
        if let Some(space) = &self.0 {
            space.try_charge_outside(bytes).map_err(|_| Errno::NOSPC)?;
        }
        Ok(Charge { memory: self.clone(), bytes })
    }

    /// The same in any case, for what takes the place of something as large.
    pub fn charge_anyway(&self, bytes: u64) -> Charge {
        if let Some(space) = &self.0 {
            space.charge_outside(bytes);
        }
        Charge { memory: self.clone(), bytes }
    }
}

impl Charge {
    /// Counts so many bytes more.
    ///
    /// # Errors
    /// `ENOSPC`: there is no room; it is as it was.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Errno> {
        if let Some(space) = &self.memory.0 {
            space.try_charge_outside(bytes).map_err(|_| Errno::NOSPC)?;
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(space) = &self.memory.0 {
            space.uncharge_outside(self.bytes);
        }
    }
}

/// What a name takes, in bytes.
pub fn entry_memory(name: &[u8]) -> u64 {
    ENTRY_MEMORY + name.len() as u64
}

/// The inodes of a file system, counted.
#[derive(Debug)]
pub struct Inodes {
    used: AtomicU64,
    max: u64,
    memory: Memory,
}

/// The place of one inode; dropping it gives it back.
#[derive(Debug)]
pub struct InodeReservation {
    inodes: Arc<Inodes>,
    /// Its memory, and that of what it holds.
    pub charge: Charge,
}

impl Inodes {
    /// At most `max`, the root included, whose memory counts towards this.
    pub fn new(max: u64, memory: Memory) -> Arc<Self> {
        Arc::new(Inodes { used: AtomicU64::new(0), max, memory })
    }

    /// A place for one more; `None` when all are used, or there is no memory for it.
    pub fn reserve(self: &Arc<Self>) -> Option<InodeReservation> {
        let more = |used| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Relaxed, Relaxed, more).ok()?;
        match self.memory.charge(INODE_MEMORY) {
            Ok(charge) => Some(InodeReservation { inodes: Arc::clone(self), charge }),
            Err(_) => {
                self.used.fetch_sub(1, Relaxed);
                None
            }
        }
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
        self.inodes.used.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_once_and_comes_back() {
        let inodes = Inodes::new(2, Memory::default());
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

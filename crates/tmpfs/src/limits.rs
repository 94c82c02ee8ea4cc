//! The bound on the number of inodes, and the memory that inodes and their names take. (The shmem
//! space counts the pages of contents.)

use folioswap_shmem::ShmemSpace;
use rustix::io::Errno;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The memory of an inode and its entries in the tables, in bytes. Together with [`ENTRY_MEMORY`]
/// it exceeds the measured memory of small files (see `docs/reference/tmpfs.md`).
pub const INODE_MEMORY: u64 = 480;
/// The memory of a name besides its own length: its entries in the directory's two tables, at their
/// lowest load factor.
pub const ENTRY_MEMORY: u64 = 192;
/// The further memory of a directory: tables with room for the first names.
pub const DIRECTORY_MEMORY: u64 = 768;
/// The memory of an extended attribute besides its name and value. The first one of an inode
/// allocates a table for eleven.
pub const XATTR_MEMORY: u64 = 640;

/// The limit that memory counts towards.
#[derive(Clone, Debug, Default)]
pub struct Memory(Option<Arc<ShmemSpace>>);

/// Counted memory; dropping it takes the count back.
#[derive(Debug)]
pub struct Charge {
    memory: Memory,
    bytes: u64,
}

impl Memory {
    /// Counts towards the limit of this space.
    pub fn within(space: &Arc<ShmemSpace>) -> Self {
        Memory(Some(Arc::clone(space)))
    }

    /// Counts `bytes`. The caller must hold no lock, because contents may have to leave first.
    ///
    /// # Errors
    /// `ENOSPC`: there is no room.
    pub fn charge(&self, bytes: u64) -> Result<Charge, Errno> {
        if let Some(space) = &self.0 {
            space.try_charge_outside(bytes).map_err(|_| Errno::NOSPC)?;
        }
        Ok(Charge { memory: self.clone(), bytes })
    }

    /// Counts `bytes` even without room, for memory that replaces as much.
    pub fn charge_anyway(&self, bytes: u64) -> Charge {
        if let Some(space) = &self.0 {
            space.charge_outside(bytes);
        }
        Charge { memory: self.clone(), bytes }
    }
}

impl Charge {
    /// Counts `bytes` more.
    ///
    /// # Errors
    /// `ENOSPC`: there is no room, and the count is unchanged.
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

/// Returns the memory of a name, in bytes.
pub fn entry_memory(name: &[u8]) -> u64 {
    ENTRY_MEMORY + name.len() as u64
}

/// The number of inodes of a file system.
#[derive(Debug)]
pub struct Inodes {
    used: AtomicU64,
    max: u64,
    memory: Memory,
}

/// The reservation of one inode; dropping it gives the inode back.
#[derive(Debug)]
pub struct InodeReservation {
    inodes: Arc<Inodes>,
    /// The memory of the inode and of its contents other than pages.
    pub charge: Charge,
}

impl Inodes {
    /// Allows `max` inodes, the root included, whose memory counts towards `memory`.
    pub fn new(max: u64, memory: Memory) -> Arc<Self> {
        Arc::new(Inodes { used: AtomicU64::new(0), max, memory })
    }

    /// Reserves one more inode; `None`: all are used, or there is no memory for it.
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

    /// Returns how many inodes there are.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Returns how many inodes there can be.
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
mod tests;

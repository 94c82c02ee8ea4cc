//! Several mappings that the program moves by one call.

use crate::engine::descriptors;
use crate::kernel::maps;
use crate::kernel::sys;
use crate::units::PAGE;
use folioswap_group::protocol::ProcFile;
use linux_raw_sys::general as raw;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Mappings that are to lie elsewhere, with the gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where the first of them begins, or a page within it.
    pub from: usize,
    /// Up to the end of the last.
    pub bytes: usize,
    /// Where they are to lie. What is there is unmapped, but for what lies at the gaps.
    pub to: usize,
}

/// What became of a [`Move`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// All mappings lie at their new place.
    Moved,
    /// This kernel moves one mapping by a call, and nothing was done.
    NotOfThisKernel,
}

impl Move {
    /// Moves the mappings one after the other, those that the kernel has not moved already before
    /// it came to one that it does not move with others. Threads of the program.
    ///
    /// # Errors
    /// Those of mremap(2); the mappings before stay at their new place, as they do with the kernel.
    /// EFAULT without a list of mappings (`/proc`).
    ///
    /// # Safety
    /// Nothing may use the memory at both places that it must not use after the call.
    pub unsafe fn in_pieces(self) -> Result<Whole, Errno> {
        if !kernel_moves_several() {
            return Ok(Whole::NotOfThisKernel);
        }
        let list = descriptors::open(ProcFile::Maps).map_err(|_| Errno::FAULT)?;
        let mut buffer = [0; 8 << 10];
        let end = self.from.checked_add(self.bytes).ok_or(Errno::INVAL)?;
        let mut moved = Ok(());
        // A mapping that has moved behind those that are left is none of the range, so the list may
        // be read while it changes.
        maps::read(list.as_fd(), &mut buffer, |mapping| {
            let (start, end) = (mapping.start.max(self.from), mapping.end.min(end));
            if start < end && moved.is_ok() {
                // SAFETY: by contract.
                moved = unsafe { remap(start, end - start, self.to + (start - self.from)) };
            }
        })
        .map_err(|_| Errno::FAULT)?;
        moved.map(|()| Whole::Moved)
    }
}

/// mremap(2) to a place.
///
/// # Safety
/// That of the call.
unsafe fn remap(from: usize, bytes: usize, to: usize) -> Result<(), Errno> {
    let flags = raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED;
    // SAFETY: by contract.
    unsafe { sys::syscall(raw::__NR_mremap, [from, bytes, bytes, flags as usize, to, 0]) }.map(drop)
}

/// Whether the kernel moves two mappings by one call (Linux 6.17), tried on memory of our own.
/// Cost: five system calls.
fn kernel_moves_several() -> bool {
    let map = |pages: usize| {
        let (access, flags) = (ProtFlags::READ, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping.
        unsafe { mmap_anonymous(core::ptr::null_mut(), pages * PAGE, access, flags) }
    };
    let (Ok(from), Ok(to)) = (map(2), map(2)) else { return false };
    // SAFETY: the mappings are ours and hold nothing. The second page becomes a mapping of its own.
    unsafe {
        let guarded = rustix::mm::mprotect(from.byte_add(PAGE), PAGE, rustix::mm::MprotectFlags::empty());
        let moved = guarded.is_ok() && remap(from as usize, 2 * PAGE, to as usize).is_ok();
        let _ = munmap(from, 2 * PAGE);
        let _ = munmap(to, 2 * PAGE);
        moved
    }
}

#[cfg(test)]
mod tests;

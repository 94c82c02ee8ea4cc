//! Several mappings that the program moves by one call.

use crate::engine::descriptors;
use crate::kernel::{sys, window};
use crate::units::PAGE;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use folioswap_group::protocol::ProcFile;
use linux_raw_sys::general as raw;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Mappings that are to lie elsewhere, with the gaps between them: a call of mremap(2) with
/// MREMAP_FIXED that changes no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where the first of them begins, or a page within it.
    pub from: usize,
    /// Up to the end of the last; whole pages.
    pub bytes: usize,
    /// Where they are to lie. What is there is unmapped, but for what lies at the gaps.
    pub to: usize,
    /// The flags of the call.
    pub flags: usize,
}

/// Whose work a [`Move`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// One call does it, or refuses it as it should.
    Kernel,
    /// There are several mappings, which the kernel does not move at once if a userfaultfd serves
    /// one of them.
    Us,
}

impl Move {
    /// Whether the two places have nothing in common; the kernel refuses a move that does.
    pub fn is_apart(self) -> bool {
        let ends = (self.from.checked_add(self.bytes), self.to.checked_add(self.bytes));
        matches!(ends, (Some(end), Some(new_end)) if end <= self.to || new_end <= self.from)
    }

    /// Who is to move these mappings. It must be asked before the kernel is: a call that the kernel
    /// refuses may have moved some. Cost: three or four system calls.
    pub fn mover(self) -> Mover {
        let Some(end) = self.from.checked_add(self.bytes) else { return Mover::Kernel };
        let Ok(list) = descriptors::open(ProcFile::Maps) else { return Mover::Kernel };
        match mapping_at(list.as_fd(), self.from) {
            Some(first) if first.start <= self.from && first.end < end && kernel_moves_several() => Mover::Us,
            // One mapping, or none, or a kernel that knows only one.
            _ => Mover::Kernel,
        }
    }

    /// Moves the mappings one after the other, as the kernel does. Threads of the program.
    ///
    /// # Errors
    /// Those of mremap(2); the mappings before stay at their new place, as they do with the kernel.
    /// EFAULT without a list of mappings (`/proc`).
    ///
    /// # Safety
    /// Nothing may use the memory at both places that it must not use after the call.
    pub unsafe fn in_pieces(self) -> Result<(), Errno> {
        let list = descriptors::open(ProcFile::Maps).map_err(|_| Errno::FAULT)?;
        let end = self.from + self.bytes;
        let mut at = self.from;
        // A place that has been left is not looked at again.
        while at < end {
            let Some(mapping) = mapping_at(list.as_fd(), at).filter(|mapping| mapping.start < end) else {
                break;
            };
            let (start, stop) = (mapping.start.max(at), mapping.end.min(end));
            // SAFETY: by contract.
            unsafe { remap(start, stop - start, self.to + (start - self.from), self.flags) }?;
            at = stop;
        }
        Ok(())
    }
}

/// Bounds of a mapping.
#[derive(Clone, Copy)]
struct Bounds {
    start: usize,
    end: usize,
}

/// The kernel's `procmap_query` (include/uapi/linux/fs.h, Linux 6.11).
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    mapping_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name: u64,
    build_id: u64,
}

/// The mapping at an address, or the next one; `None` where there is none, or before Linux 6.11.
fn mapping_at(list: BorrowedFd<'_>, address: usize) -> Option<Bounds> {
    /// `_IOWR('f', 17, struct procmap_query)`.
    const QUERY: u32 = 3 << 30 | (size_of::<ProcmapQuery>() as u32) << 16 | (b'f' as u32) << 8 | 17;
    const COVERING_OR_NEXT: u64 = 0x10;
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        flags: COVERING_OR_NEXT,
        address: address as u64,
        ..ProcmapQuery::default()
    };
    // SAFETY: the structure is the one that the request demands.
    unsafe { sys::ioctl(list.as_raw_fd(), QUERY, &raw mut query) }.ok()?;
    Some(Bounds { start: query.start as usize, end: query.end as usize })
}

/// mremap(2) to a place.
///
/// # Safety
/// That of the call.
unsafe fn remap(from: usize, bytes: usize, to: usize, flags: usize) -> Result<(), Errno> {
    // SAFETY: by contract.
    unsafe { sys::syscall(raw::__NR_mremap, [from, bytes, bytes, flags, to, 0]) }.map(drop)
}

/// Whether the kernel moves two mappings by one call (Linux 6.17), tried once on memory of our own,
/// where nobody else maps.
fn kernel_moves_several() -> bool {
    const NO: u32 = 1;
    const YES: u32 = 2;
    static ANSWER: AtomicU32 = AtomicU32::new(0);
    if ANSWER.load(Relaxed) == 0 {
        ANSWER.store(if try_to_move_two() { YES } else { NO }, Relaxed);
    }
    ANSWER.load(Relaxed) == YES
}

fn try_to_move_two() -> bool {
    let map = || {
        let (access, flags) = (ProtFlags::READ, MapFlags::PRIVATE | MapFlags::NORESERVE);
        let place = window::place(2 * PAGE);
        // SAFETY: a new mapping.
        unsafe { mmap_anonymous(place, 2 * PAGE, access, flags) }.ok().filter(|&start| start == place)
    };
    let (Some(from), Some(to)) = (map(), map()) else { return false };
    let flags = (raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED) as usize;
    // SAFETY: the mappings are ours and hold nothing. The second page becomes a mapping of its own.
    // Nobody maps in the window but us, and each of us at a place of his own.
    unsafe {
        let is_two = mprotect(from.byte_add(PAGE), PAGE, MprotectFlags::empty()).is_ok();
        let moved = is_two && remap(from as usize, 2 * PAGE, to as usize, flags).is_ok();
        let _ = munmap(from, 2 * PAGE);
        let _ = munmap(to, 2 * PAGE);
        moved
    }
}

#[cfg(test)]
mod tests;

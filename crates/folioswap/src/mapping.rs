//! Mappings of the library's own: address space for regions, and the memories of a group.

use crate::Error;
use folioswap_devices::PAGE_SIZE;
use folioswap_group::decisions::{Decisions, DecisionsWriter};
use folioswap_group::group::Group;
use folioswap_group::segment::Segment;
use folioswap_pager::units::ADDRESS_END;
use folioswap_slots::Order;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// The size of the kernel's largest folio. Regions begin at a multiple of it.
const BLOCK: usize = PAGE_SIZE * Order::MAX.slots() as usize;

/// Private anonymous memory, page-aligned; unmapped on drop, in the process that made it. A forked
/// child has none of it, except for the memories of a group.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    process: u32,
}

// SAFETY: the value is an address range; its owner decides which thread uses the contents.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes`, rounded up to pages, at a multiple of 2 MiB.
    pub(crate) fn new(bytes: usize) -> Result<Self, Error> {
        let doing = "mapping memory";
        let too_large = Error::TooLarge {
            bytes: bytes as u64,
            why: "an address space has 128 TiB: ask for what will be used",
        };
        let rounded = bytes.checked_next_multiple_of(PAGE_SIZE);
        let Some((rounded, reserved)) = rounded.and_then(|bytes| Some((bytes, bytes.checked_add(BLOCK)?)))
        else {
            return Err(too_large);
        };
        if reserved >= ADDRESS_END {
            return Err(too_large);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice; the parts that are unmapped
        // lie within it.
        unsafe {
            let found = mmap_anonymous(null_mut(), reserved, ProtFlags::READ | ProtFlags::WRITE, flags)
                .map_err(Error::system(doing))? as usize;
            let start = found.next_multiple_of(BLOCK);
            for (from, to) in [(found, start), (start + rounded, found + reserved)] {
                if from < to {
                    let _ = munmap(from as *mut c_void, to - from);
                }
            }
            let start = NonNull::new(start as *mut u8)
                .ok_or(Error::System { doing, errno: rustix::io::Errno::NOMEM })?;
            let mapping = Mapping { start, bytes: rounded, process: process() };
            madvise(start.as_ptr().cast(), rounded, Advice::LinuxDontFork).map_err(Error::system(doing))?;
            Ok(mapping)
        }
    }

    /// Maps `bytes`, whole pages, at this address, in place of the present mapping.
    ///
    /// # Safety
    /// The caller owns the present mapping, and no one refers to it.
    pub(crate) unsafe fn new_at(address: usize, bytes: usize) -> Result<Self, Error> {
        let doing = "mapping memory at an address";
        let (place, all) = (NonNull::new(address as *mut u8), ProtFlags::READ | ProtFlags::WRITE);
        let place =
            place.filter(|_| address.is_multiple_of(BLOCK) && bytes.is_multiple_of(PAGE_SIZE) && bytes > 0);
        let start = place.ok_or(Error::System { doing, errno: rustix::io::Errno::INVAL })?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the caller owns the range.
        unsafe {
            mmap_anonymous(start.as_ptr().cast(), bytes, all, flags).map_err(Error::system(doing))?;
            let mapping = Mapping { start, bytes, process: process() };
            madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork).map_err(Error::system(doing))?;
            Ok(mapping)
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Returns the length in bytes: whole pages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the calling process made the mapping, and not one that it was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == process()
    }

    /// Discards the contents of whole pages, which read as zeroes afterwards.
    ///
    /// # Safety
    /// `start..start + bytes` is within the mapping, whole pages, and no one relies on the
    /// contents.
    pub(crate) unsafe fn give_up(&self, start: usize, bytes: usize) -> Result<(), Error> {
        // SAFETY: the caller vouches for the range.
        unsafe { madvise(start as *mut c_void, bytes, Advice::LinuxDontNeed) }
            .map_err(Error::system("giving memory up"))
    }

    /// Makes the mapping larger, at another address where needed.
    ///
    /// # Safety
    /// No one refers to the memory now, or uses its old address afterwards.
    pub(crate) unsafe fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        // SAFETY: the caller vouches that the old address is used no more.
        let moved = unsafe { mremap(self.start.as_ptr().cast(), self.bytes, bytes, MremapFlags::MAYMOVE) };
        let moved = moved.map_err(Error::system("making a region larger"))?;
        self.start = NonNull::new(moved.cast()).unwrap_or(self.start);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a forked child another mapping may be at this address.
        if self.is_of_this_process() {
            // SAFETY: the value owns the mapping, and no one refers to it any more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Returns the process id of the caller.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Decisions and segment of a group whose members are all in this process, in memory of its own.
#[derive(Debug)]
pub(crate) struct GroupMapping {
    decisions: Mapping,
    segment: Mapping,
}

impl GroupMapping {
    /// Makes memories that are all zero.
    pub(crate) fn new() -> Result<Self, Error> {
        let inherited = |bytes| -> Result<Mapping, Error> {
            let mapping = Mapping::new(bytes)?;
            // A forked child has a copy, so that it finds the counters as they were.
            // SAFETY: the mapping is this value's own, and the advice does not change its contents.
            unsafe { madvise(mapping.start().as_ptr().cast(), mapping.bytes(), Advice::LinuxDoFork) }
                .map_err(Error::system("making the memory of a group"))?;
            Ok(mapping)
        };
        Ok(GroupMapping { decisions: inherited(Decisions::BYTES)?, segment: inherited(Segment::BYTES)? })
    }

    /// Returns whether the calling process made the memories, and not one that it was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.segment.is_of_this_process()
    }

    pub(crate) fn group(&self) -> Group<'_> {
        // SAFETY: zeroed memory of the right size and alignment is valid for both, which have only
        // atomics.
        unsafe {
            Group {
                decisions: self.decisions.start.cast().as_ref(),
                segment: self.segment.start.cast().as_ref(),
            }
        }
    }

    /// Returns the right to decide.
    pub(crate) fn writer(&self) -> DecisionsWriter<'_> {
        // SAFETY: the mapping is private to this process, for reading and writing.
        unsafe { DecisionsWriter::new(self.group().decisions) }
    }
}

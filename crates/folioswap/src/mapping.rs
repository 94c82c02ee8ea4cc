//! Mappings of our own: address space for regions, and the segment of figures.

use crate::Error;
use folioswap_group::segment::Segment;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// What the kernel's largest folio spans: regions begin at a multiple of it.
const BLOCK: usize = 2 << 20;

/// Private anonymous memory, page-aligned; unmapped when dropped, in the process that made it. A forked child has none of it (but of the segment).
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    process: u32,
}

// SAFETY: an address range; who uses its contents is the owner's to say.
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
        let rounded = bytes.checked_next_multiple_of(PAGE);
        let Some((rounded, reserved)) = rounded.and_then(|bytes| Some((bytes, bytes.checked_add(BLOCK)?)))
        else {
            return Err(too_large);
        };
        if reserved >= 1 << 47 {
            return Err(too_large);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice; what of it is given back is within it.
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

    /// Maps `bytes`, whole pages, at this address, instead of what is there.
    ///
    /// # Safety
    /// What is mapped there is the caller's, and nobody refers to it.
    pub(crate) unsafe fn new_at(address: usize, bytes: usize) -> Result<Self, Error> {
        let doing = "mapping memory at an address";
        let (place, all) = (NonNull::new(address as *mut u8), ProtFlags::READ | ProtFlags::WRITE);
        let place =
            place.filter(|_| address.is_multiple_of(BLOCK) && bytes.is_multiple_of(PAGE) && bytes > 0);
        let start = place.ok_or(Error::System { doing, errno: rustix::io::Errno::INVAL })?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: by contract.
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

    /// In bytes: whole pages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Was it made by the calling process, and not by one that it was forked from?
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == process()
    }

    /// Gives the contents of whole pages up: they read as zeroes.
    ///
    /// # Safety
    /// `start..start + bytes` is within the mapping, whole pages, and nobody relies on what it holds.
    pub(crate) unsafe fn give_up(&self, start: usize, bytes: usize) -> Result<(), Error> {
        // SAFETY: by contract.
        unsafe { madvise(start as *mut c_void, bytes, Advice::LinuxDontNeed) }
            .map_err(Error::system("giving memory up"))
    }

    /// Makes it larger, elsewhere if need be.
    ///
    /// # Safety
    /// Nobody refers to the memory, or uses its old address afterwards.
    pub(crate) unsafe fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        // SAFETY: by contract.
        let moved = unsafe { mremap(self.start.as_ptr().cast(), self.bytes, bytes, MremapFlags::MAYMOVE) };
        let moved = moved.map_err(Error::system("making a region larger"))?;
        self.start = NonNull::new(moved.cast()).unwrap_or(self.start);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a forked child something else may be there.
        if self.is_of_this_process() {
            // SAFETY: ours, and nobody refers to it any more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

/// The calling process.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// A segment in memory of its own.
#[derive(Debug)]
pub(crate) struct SegmentMapping(Mapping);

impl SegmentMapping {
    /// All zero.
    pub(crate) fn new() -> Result<Self, Error> {
        let mapping = Mapping::new(Segment::BYTES)?;
        // A forked child finds the figures as they were.
        // SAFETY: our own mapping; what it holds does not change.
        unsafe { madvise(mapping.start().as_ptr().cast(), mapping.bytes(), Advice::LinuxDoFork) }
            .map_err(Error::system("making the segment"))?;
        Ok(SegmentMapping(mapping))
    }

    /// Was it made by the calling process, and not by one that it was forked from?
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.0.is_of_this_process()
    }

    pub(crate) fn segment(&self) -> &Segment {
        // SAFETY: zeroed memory of the right size and alignment is a segment, which has only atomics.
        unsafe { self.0.start.cast().as_ref() }
    }
}

//! Mappings of memory that members share with the supervisor: the segment of the group, and the
//! trace ring of each member.

use folioswap_group::segment::Segment;
use folioswap_trace::Ring;
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create, open},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{ffi::CStr, ops::Deref, ptr::null_mut};

/// A type that may be shared with processes that write to it at any time.
///
/// # Safety
/// The type consists of atomics, for which any bytes are valid, and its alignment is at most that
/// of a page.
pub unsafe trait OfAtomics {}
// SAFETY: `Segment` is declared of atomics alone.
unsafe impl OfAtomics for Segment {}
// SAFETY: `Ring` is declared of atomics alone.
unsafe impl OfAtomics for Ring {}

/// A shared mapping of a `T`; dropping it unmaps the memory.
pub struct Mapped<T: OfAtomics = Segment>(*mut T);

impl<T: OfAtomics> Mapped<T> {
    fn map(fd: impl AsFd, protection: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: a new shared mapping at an address of the kernel's choice; the callers made the
        // file, or checked it to be, as long as a T.
        let address = unsafe { mmap(null_mut(), size_of::<T>(), protection, MapFlags::SHARED, fd, 0)? };
        Ok(Mapped(address.cast()))
    }

    /// Makes an all-zero memfd that nobody can resize, and returns its descriptor and its mapping.
    ///
    /// # Errors
    /// Of memfd_create(2) and mmap(2).
    pub fn create(name: &CStr) -> Result<(OwnedFd, Self), Errno> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, size_of::<T>() as u64)?;
        fcntl_add_seals(&fd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)?;
        let mapped = Self::map(&fd, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok((fd, mapped))
    }
}

impl Mapped {
    /// Maps a segment that another process made, read-only.
    ///
    /// # Errors
    /// `EINVAL` for a file that is too short, not sealed against shrinking, or of another version.
    pub fn read_only(fd: impl AsFd) -> Result<Self, Errno> {
        let seals = rustix::fs::fcntl_get_seals(&fd)?;
        if !seals.contains(SealFlags::SHRINK) || fstat(&fd)?.st_size < Segment::BYTES as i64 {
            return Err(Errno::INVAL);
        }
        let mapped = Self::map(fd, ProtFlags::READ)?;
        if mapped.check().is_err() { Err(Errno::INVAL) } else { Ok(mapped) }
    }
}

// SAFETY: the mapping belongs to no thread, and the memory consists of atomics.
unsafe impl<T: OfAtomics> Send for Mapped<T> {}

impl<T: OfAtomics> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is as long as a T, page-aligned, lives as long as self, cannot be
        // shortened (the file is sealed), and consists of atomics, for which any bytes are valid.
        unsafe { &*self.0 }
    }
}

impl<T: OfAtomics> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length; no reference outlives self.
        let _ = unsafe { munmap(self.0.cast(), size_of::<T>()) };
    }
}

/// A new segment: its descriptors and its mapping.
pub struct SegmentFile {
    /// The descriptor for members, which write.
    pub fd: OwnedFd,
    /// The descriptor for processes that only look (`swapon --show`).
    pub read_only: OwnedFd,
    /// The mapping of the supervisor.
    pub mapped: Mapped,
}

impl SegmentFile {
    /// Makes an all-zero segment that nobody can resize.
    ///
    /// # Errors
    /// Of memfd_create(2) and mmap(2).
    pub fn create() -> Result<Self, Errno> {
        let (fd, mapped) = Mapped::create(c"folioswap-group")?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let read_only = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(SegmentFile { fd, read_only, mapped })
    }

    /// Maps the segment once more, for another thread.
    ///
    /// # Errors
    /// Of mmap(2).
    pub fn map_again(&self) -> Result<Mapped, Errno> {
        Mapped::map(&self.fd, ProtFlags::READ | ProtFlags::WRITE)
    }
}

#[cfg(test)]
mod tests;

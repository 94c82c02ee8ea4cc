//! Mappings of memory that members share with the supervisor: decisions and segment of the group,
//! and the trace ring of each member.

use folioswap_group::{decisions::Decisions, segment::Segment};
use folioswap_trace::Ring;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
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
// SAFETY: `Decisions` is declared of atomics alone.
unsafe impl OfAtomics for Decisions {}
// SAFETY: `Segment` is declared of atomics alone.
unsafe impl OfAtomics for Segment {}
// SAFETY: `Ring` is declared of atomics alone.
unsafe impl OfAtomics for Ring {}

/// What a process may do with the memory if it is given the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Read and write.
    Write,
    /// Read alone: whoever asks for more is refused, by whatever way he comes. The mapping that
    /// existed before goes on writing.
    Read,
}

impl Others {
    fn seals(self) -> SealFlags {
        let fixed = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
        match self {
            Others::Write => fixed,
            Others::Read => fixed | SealFlags::FUTURE_WRITE,
        }
    }
}

/// A shared mapping of a `T`; dropping it unmaps the memory.
pub struct Mapped<T: OfAtomics>(*mut T);

impl<T: OfAtomics> Mapped<T> {
    fn map(fd: impl AsFd, protection: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: a new shared mapping at an address of the kernel's choice; the callers made the
        // file, or checked it to be, as long as a T.
        let address = unsafe { mmap(null_mut(), size_of::<T>(), protection, MapFlags::SHARED, fd, 0)? };
        Ok(Mapped(address.cast()))
    }

    /// Makes an all-zero memfd that nobody can resize, and returns its descriptor and a mapping for
    /// writing.
    ///
    /// # Errors
    /// Of memfd_create(2) and mmap(2).
    pub fn create(name: &CStr, others: Others) -> Result<(OwnedFd, Self), Errno> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, size_of::<T>() as u64)?;
        let mapped = Self::for_writing(&fd)?;
        fcntl_add_seals(&fd, others.seals())?;
        Ok((fd, mapped))
    }

    /// Maps memory once more that [`Mapped::create`] made with [`Others::Write`].
    ///
    /// # Errors
    /// Of mmap(2): `EPERM` for memory that others may only read.
    pub fn for_writing(fd: impl AsFd) -> Result<Self, Errno> {
        Self::map(fd, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps memory that another process may have made, for reading.
    ///
    /// # Errors
    /// `EINVAL` for a file that is too short, or not sealed against shrinking.
    pub fn for_reading(fd: impl AsFd) -> Result<Self, Errno> {
        if !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) || fstat(&fd)?.st_size < size_of::<T>() as i64 {
            return Err(Errno::INVAL);
        }
        Self::map(fd, ProtFlags::READ)
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

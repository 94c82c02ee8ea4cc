//! Anonymous memory straight from the system: reserved as addresses, resident once touched.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;

/// A private anonymous mapping, zeroed, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    /// The mapping itself, with the addresses that alignment cost.
    mapped: (NonNull<u8>, usize),
}

// SAFETY: an address range; its users decide who writes where in it.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of zeroed addresses, aligned to `align` (a power of two, at least a page).
    /// `None` if the system has none left.
    pub(crate) fn new(bytes: usize, align: usize) -> Option<Mapping> {
        let mapped = bytes.checked_add(if align > 4096 { align } else { 0 })?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let base = NonNull::new(start.ok()?.cast::<u8>())?;
        let skip = base.as_ptr().align_offset(align);
        // SAFETY: `skip` is below `align`, and `align` more than `bytes` were mapped.
        Some(Mapping { start: unsafe { base.add(skip) }, mapped: (base, mapped) })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Forbids huge pages, so that memory given back page by page leaves page by page.
    pub(crate) fn without_huge_pages(self) -> Mapping {
        // SAFETY: advice about our own mapping; it changes no contents. A kernel without huge pages
        // refuses it, which is as good.
        let _ = unsafe { madvise(self.mapped.0.as_ptr().cast(), self.mapped.1, Advice::LinuxNoHugepage) };
        self
    }
}

/// Gives the memory behind a page-aligned range back; it reads as zeroes afterwards.
///
/// # Safety
/// The range lies in one [`Mapping`], nobody refers to it, and its contents are not needed.
pub(crate) unsafe fn give_back(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's contract.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; its owner is gone, and with it every user.
        let _ = unsafe { munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
    }
}

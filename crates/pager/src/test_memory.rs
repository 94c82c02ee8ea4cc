//! What tests of the kernel's part need: memory of the program, and a userfaultfd.

use crate::uffd::Userfault;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

fn map_with(address: usize, bytes: usize, flags: MapFlags) -> usize {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice or where nothing is.
    unsafe { mmap_anonymous(address as *mut _, bytes, access, MapFlags::PRIVATE | flags).unwrap() as usize }
}

/// A new mapping.
pub(crate) fn map(bytes: usize) -> usize {
    map_with(0, bytes, MapFlags::empty())
}

/// A new mapping in a hole.
pub(crate) fn map_at(hole: usize, bytes: usize) -> usize {
    map_with(hole, bytes, MapFlags::FIXED_NOREPLACE)
}

/// `None` where it is not allowed, as `folioswap doctor` tells.
pub(crate) fn userfault() -> Option<Userfault> {
    Userfault::open().inspect_err(|why| std::eprintln!("skipped: userfaultfd: {why}")).ok()
}

//! The descriptors of the pager threads.

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Descriptors in the table of the pager threads. -1: none.
#[repr(C)]
pub struct Descriptors {
    pub(crate) userfault: AtomicI32,
    pub(crate) maps: AtomicI32,
    pub(crate) pagemap: AtomicI32,
    pub(crate) statm: AtomicI32,
    pub(crate) control: AtomicI32,
}

impl Descriptors {
    pub(crate) fn forget(&self) {
        let Descriptors { userfault, maps, pagemap, statm, control } = self;
        for descriptor in [userfault, maps, pagemap, statm, control] {
            descriptor.store(-1, Relaxed);
        }
    }
}

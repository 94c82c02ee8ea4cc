//! The state of an engine inside a program that asked for it.

use crate::engine::commands::Commands;
use crate::kernel::latency::Latency;
use core::ffi::c_void;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32};

const NOT_EMBEDDED: u32 = 0;

pub(crate) const EMBEDDED: u32 = 1;

pub(crate) const STOPPING: u32 = 2;

/// An embedded engine's state. All-zero: the engine is not embedded.
#[repr(C)]
pub(crate) struct Embedded {
    pub(crate) state: AtomicU32,
    /// Devices that must not be used, a bit each.
    pub(crate) forbidden: AtomicU32,
    /// Resident pages of managed memory: the code that brings pages adds to it, the code that takes
    /// them away subtracts, and the pages are counted anew now and then.
    managed_pages: AtomicI64,
    pub(crate) commands: Commands,
    pub(crate) latency: Latency,
    /// 1 once a range was duplicated: entries may have several holders.
    duplicates: AtomicU32,
    /// The handler (`fault::handler::Handler`, which this room does not know) that serves faults in
    /// the threads that take them, under `locks.serve`; null where the handler thread serves them.
    pub(crate) served_in_place: AtomicPtr<c_void>,
}

impl Embedded {
    /// Whether an embedder says which memory is managed.
    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Relaxed) != NOT_EMBEDDED
    }

    /// Whether the threads are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.load(Acquire) == STOPPING
    }

    /// Whether any range was duplicated.
    pub(crate) fn has_duplicates(&self) -> bool {
        self.duplicates.load(Relaxed) != 0
    }

    /// Records that a range is about to be duplicated.
    pub(crate) fn note_duplicate(&self) {
        self.duplicates.store(1, Relaxed);
    }

    /// Records that pages came into managed memory.
    pub(crate) fn came(&self, pages: u64) {
        self.managed_pages.fetch_add(pages as i64, Relaxed);
    }

    /// Records that pages left managed memory, or are about to.
    pub(crate) fn went(&self, pages: u64) {
        self.managed_pages.fetch_sub(pages as i64, Relaxed);
    }

    /// Resident pages of managed memory, as counted.
    pub(crate) fn managed_pages(&self) -> i64 {
        self.managed_pages.load(Relaxed)
    }

    pub(crate) fn correct(&self, by: i64) {
        self.managed_pages.fetch_add(by, Relaxed);
    }
}

//! Whether the program has put a filter (seccomp) before its own calls. The gate then makes none
//! that the program would not make: nothing is rewritten any more, and threads begin unarmed.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Filters that were asked for, less those that the kernel refused. Never reset: a filter stays.
static FILTERS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn is_confined() -> bool {
    FILTERS.load(SeqCst) != 0
}

/// Before the call that brings a filter.
pub(crate) fn begin() {
    FILTERS.fetch_add(1, SeqCst);
}

/// The kernel refused it.
pub(crate) fn refused() {
    FILTERS.fetch_sub(1, SeqCst);
}

/// How many there are.
pub(crate) fn filters() -> u64 {
    FILTERS.load(SeqCst).into()
}

/// Sets their number, in the parent of a vfork: its child's filters are not its own.
pub(crate) fn set_filters(filters: u64) {
    FILTERS.store(filters as u32, SeqCst);
}

//! The command of an embedder that waits for the evictor.

use crate::kernel::futex::Lock;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize};

/// One command at a time. All-zero: none.
#[repr(C)]
pub(crate) struct Commands {
    pub(crate) serialised: Lock,
    /// [`Command`] as a number, or one of the constants above; also a futex.
    pub(crate) state: AtomicU32,
    pub(crate) start: AtomicUsize,
    pub(crate) end: AtomicUsize,
    /// Of a duplicate: its first address; then the number of its bytes that were made.
    pub(crate) target: AtomicUsize,
    pub(crate) errno: AtomicI32,
}

//! Work spaces of the pager threads, made when they are first needed.

use core::sync::atomic::AtomicUsize;

/// Addresses of work spaces that are made when they are first needed; 0 before.
#[repr(C)]
pub struct Workspaces {
    /// The evictor's, for pages that are demoted together.
    pub(crate) demotion: AtomicUsize,
    /// The evictor's, for recompression.
    pub(crate) recompression: AtomicUsize,
    /// The handler's, for pages that are read while it serves others.
    pub(crate) reads: AtomicUsize,
}

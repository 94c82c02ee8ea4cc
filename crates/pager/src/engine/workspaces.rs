//! Workspaces of the pager threads, made when they are first needed.

use core::sync::atomic::AtomicUsize;

/// Addresses of workspaces that are made when they are first needed; 0 before.
#[repr(C)]
pub struct Workspaces {
    /// The handler's buffers.
    pub(crate) buffers: AtomicUsize,
    /// The evictor's workspace for pages that are demoted together.
    pub(crate) demotion: AtomicUsize,
    /// The evictor's workspace for recompression.
    pub(crate) recompression: AtomicUsize,
    /// The handler's workspace for pages that are read while it serves other faults.
    pub(crate) reads: AtomicUsize,
}

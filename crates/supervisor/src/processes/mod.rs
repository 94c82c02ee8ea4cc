//! The processes of a group: their start, the tree that they form, the one at the other end of a
//! connection, memory without a pager, and their end.

pub mod census;
pub mod descriptors;
mod elf;
pub(crate) mod files;
#[cfg_attr(not(target_arch = "x86_64"), path = "inject_none.rs")]
pub mod inject;
pub mod limits;
pub(crate) mod orphans;
pub mod peer;
pub mod proc;
pub mod program;
pub mod same_memory;
pub mod signals;
pub mod start;
pub mod userfault;

use rustix::io::Errno;
use std::io;

/// The number of an error of the system.
fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The error of the last call through the C library.
fn last_error() -> Errno {
    errno(io::Error::last_os_error())
}

//! A heap in managed memory, for pieces of some pages or more. The arrays of the Python package
//! live in it.
//!
//! A region for each array would cost a hundred microseconds, and a process can have only 16384 of
//! them. So regions are *arenas* of 64 MiB or more, from which pieces of whole pages are cut. Freed
//! pages are reused with their contents, up to an eighth of the limit. The contents of further
//! freed pages are discarded, so that dead bytes are not swapped out for long.
#![warn(missing_docs)]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod arena;
mod extents;
mod fork;
mod heap;

pub use folioswap_devices::PAGE_SIZE as PAGE;
pub use fork::{ForkError, Receiver, Sender};
pub use heap::{Figures, Fill, Heap, Piece};

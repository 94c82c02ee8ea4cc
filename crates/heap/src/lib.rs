//! A heap in managed memory, for pieces of some pages or more: what the arrays of the Python package live in.
//!
//! A region of its own for each array would cost a hundred microseconds, and there may be 16384 of them. So regions are *arenas* of 64 MiB or more,
//! and pieces are cut from them, whole pages each. What is freed is used again as it is, up to an eighth of the limit; beyond that its contents
//! are given up, so that nothing dead is ever swapped out for long.
#![warn(missing_docs)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod arena;
mod extents;
mod fork;
mod heap;

pub use extents::PAGE;
pub use fork::{ForkError, Receiver, Sender};
pub use heap::{Figures, Fill, Heap};

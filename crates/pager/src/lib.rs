//! The pager: keeps a process's memory within the limit of its group. The only crate that knows
//! userfaultfd.
//!
//! Beside the program runs a process of our own with the same memory, and in it two threads (in an
//! embedder's program they are the program's): the **handler** (`fault`) reads faults and events
//! and serves them, the **evictor** (`evict`) measures, registers memory and takes it out. Neither
//! uses the C library, allocates, or touches memory that could be swapped out. `README.md` lists
//! the rooms; `docs/races.md` lists the races and the tests that exercise them.
#![cfg_attr(not(test), no_std)]

pub mod embed;
pub mod engine;
mod evict;
mod fault;
pub mod fork;
pub mod kernel;
pub mod program;
pub mod staging;
mod store;
#[cfg(test)]
mod test_memory;
pub mod units;

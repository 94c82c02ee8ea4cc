//! The pager: makes a process's memory obey the engine. The only room that knows userfaultfd.
//!
//! Two threads of our own live in the process: the **handler** (`handler`) reads faults and events and serves them, the
//! **evictor** (`evictor`) measures, registers memory and takes it out. Neither uses the C library, allocates, or
//! touches memory that could be swapped out. See `docs/design.md` for the races and the tests that exercise them.
#![cfg_attr(not(test), no_std)]

pub mod account;
pub mod advice;
mod ahead;
pub mod announce;
pub mod arena;
mod batch;
mod buffers;
mod candidates;
mod chunks;
mod claim;
mod clean;
mod cold;
mod company;
mod demote;
mod direct_reclaim;
mod due;
mod duplicate;
pub mod embed;
mod ending;
pub mod engine;
mod events;
mod evictor;
mod fault;
mod first_touch;
mod folio;
pub mod fork;
mod freeing;
pub mod futex;
mod hand_over;
mod handler;
pub mod huge_advice;
mod isolate;
mod join;
pub mod latency;
pub mod link;
pub mod managed;
pub mod maps;
mod measure;
mod memory_wait;
mod moves;
mod page_out;
pub mod pagemap;
mod placement;
mod pool;
pub mod ranges;
mod raw_child;
mod read_around;
mod readahead;
mod reading;
mod reads;
mod recompress;
mod registration;
pub mod requests;
mod row;
mod row_pages;
mod shared;
mod signals;
pub mod staging;
mod store_share;
mod swap_in;
mod swap_out;
mod swapoff;
pub mod sys;
#[cfg(test)]
mod test_memory;
pub mod thread;
mod ticks;
mod tiers;
mod tracing;
pub mod uffd;
pub mod validate;
mod wanted;
mod whole;
mod whole_batch;
mod workingset;
mod write_back;

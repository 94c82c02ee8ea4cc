//! The engine's middle room: what a page's state is, what leaves, what comes back, and how much at a time.
//!
//! No operating system here but the descriptors of the shared devices: the pager feeds it with faults and pages, tests feed it from a seed.
#![cfg_attr(not(test), no_std)]

pub mod around;
pub mod file_space;
pub mod history;
pub mod lock;
pub mod page;
pub mod page_table;
pub mod reclaim;
pub mod recompression;
pub mod relocation;
pub mod shared_devices;
pub mod space;
pub mod swap_link;
pub mod swapin_readahead;
pub mod swapoff;
pub mod turns;

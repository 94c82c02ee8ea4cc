//! Swap space: from a swap entry to the bytes behind it, on whichever device they are.
//!
//! The crate joins the allocator of entries (`slots`) to the devices (`devices`, and `nbd` for
//! those that the supervisor serves). It calls the operating system only for the descriptors of the
//! shared devices, for random keys, and to wait for a moment.
//!
//! | Module | Concept |
//! |---|---|
//! | [`space`] | swap entries: written, read, freed, counted, with each entry's location |
//! | [`file_space`] | the slots of shared devices in the clusters that this process owns |
//! | [`shared_devices`] | the shared devices by cluster number, and their descriptors |
//! | [`keys`] | the keys of pages on devices that others can read |
//! | `bounce` | buffers in which pages are encrypted |
//! | `open_device` | an open shared device: a file, or a link to the supervisor |
//! | [`relocation`] | stored bytes move (demotion, compaction) while their entry stays |
//! | [`recompression`] | an idle page is stored once more with a denser codec |
//! | [`swapoff`] | a device is emptied while it is in use |
#![cfg_attr(not(test), no_std)]

mod bounce;
pub mod file_space;
pub mod keys;
mod open_device;
pub mod recompression;
pub mod relocation;
pub mod shared_devices;
pub mod space;
pub mod swapoff;

//! Swap space: from a swap entry to the bytes behind it, on whichever device they are.
//!
//! Joins the allocator of entries (`slots`) to the devices (`devices`, and `nbd` for those that the supervisor serves).
//! No operating system here but the descriptors of the shared devices.
//!
//! | Module | Concept |
//! |---|---|
//! | [`space`] | swap entries: written, read, freed, counted, with the place of each entry's bytes |
//! | [`file_space`] | the slots of shared devices that this process owns, in clusters granted by the supervisor |
//! | [`shared_devices`] | the shared devices by cluster number, and their descriptors |
//! | `open_device` | one of them, open: a file, or a link to the supervisor |
//! | [`relocation`] | a page goes on to another device while its entry stays |
//! | [`recompression`] | a page is stored once more with a denser codec |
//! | [`swapoff`] | a device is emptied while it is in use |
#![cfg_attr(not(test), no_std)]

pub mod file_space;
mod open_device;
pub mod recompression;
pub mod relocation;
pub mod shared_devices;
pub mod space;
pub mod swapoff;

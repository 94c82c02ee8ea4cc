//! Memory larger than its limit, inside a Rust program.
//!
//! A [`Swap`] has a limit and devices; a [`Region`] of it is memory of any size. What of it is cold is swapped out in the background to
//! compressed RAM (within the limit) and to files behind it; what is touched comes back by itself. It is the engine of `folioswap run`, for the
//! memory that you name, and nothing else of the process: readahead, folios of every size, checksums on all that is stored. It needs no swap
//! device, no kernel module and no cgroup: Linux 6.8 or later on x86_64, and userfaultfd.
//!
//! ```
//! use folioswap::Swap;
//!
//! let swap = Swap::builder().limit("16M").build()?;
//! let mut region = swap.region("64M")?;
//! for (number, page) in region.as_mut_slice().chunks_mut(4096).enumerate() {
//!     page.fill(number as u8);
//! }
//! for (number, page) in region.as_slice().chunks(4096).enumerate() {
//!     assert!(page.iter().all(|&byte| byte == number as u8));
//! }
//! println!("{}", swap.statistics());
//! # Ok::<(), folioswap::Error>(())
//! ```
//!
//! `docs/library.md` in the repository says more: what is counted, permissions, fork, threads, what dropping a region means.
#![warn(missing_docs)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[cfg(feature = "allocator-api2")]
mod allocator;
mod aside;
mod clone;
mod clusters;
mod device;
mod device_text;
mod error;
mod group;
mod inner;
mod mapping;
mod overcommit;
mod pager;
mod pin;
mod region;
mod restore;
mod scope;
mod shmem;
mod sigbus;
mod size;
mod statistics;
mod swap;
mod touch;

#[cfg(feature = "allocator-api2")]
pub use allocator::RegionAllocator;
pub use device::Device;
pub use error::Error;
pub use group::GroupBuilder;
pub use overcommit::WhenFull;
pub use pin::Pin;
pub use region::Region;
pub use scope::MemoryScope;
pub use shmem::{HugePolicy, ShmemBuilder, ShmemError, ShmemObject, ShmemSpace, ShmemStatistics};
pub use size::IntoBytes;
pub use statistics::Statistics;
pub use swap::{FaultMode, LEAST_LIMIT, Swap, SwapBuilder};

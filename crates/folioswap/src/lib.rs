//! Memory larger than its limit, inside a Rust program.
//!
//! A [`Swap`] has a limit and swap devices. A [`Region`] of it is memory of any size. The engine
//! swaps cold pages out in the background, to compressed RAM within the limit and to files behind
//! it, and brings a page back when a thread touches it. It is the engine of `folioswap run`,
//! applied only to the memory that you name: readahead, folios of every size, a checksum on each
//! stored page. It needs Linux 6.8 or later on x86_64 (6.10 on aarch64) and userfaultfd; it needs
//! no swap device, kernel module or cgroup.
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
//! # Where to look
//!
//! | Question | Answer |
//! |---|---|
//! | Which memory counts towards the limit? | [`SwapBuilder::limit`], [`MemoryScope`] |
//! | Where are pages stored? | [`Device`], [`SwapBuilder::device`] |
//! | What happens when every device is full? | [`WhenFull`] |
//! | How do I give advice, pin, clone or grow memory? | [`Region`] |
//! | How long are raw pointers into a region valid? | [`Region`], [`Region::base`] |
//! | Do read(2) and write(2) work on a region? | [`Swap::serves_system_calls`], [`Gate`]; [`Region::read_from`] and [`Region::write_to`] always do |
//! | What does a forked child see? | [`Swap`] |
//! | Which thread serves a fault? | [`FaultMode`] |
//! | How do I put a limit within a limit? | [`Swap::group`] |
//! | How do I keep a `Vec` in a region? | `RegionAllocator`, feature `allocator-api2` |
//! | How do I keep contents that calls read and write, without mapping them? | [`ShmemSpace`] |
//! | How do I see what the engine does? | [`Statistics`] |
//!
//! # Permission
//!
//! A system call on a region, such as read(2) into it, may fault in kernel mode. userfaultfd serves
//! such faults only for a process with CAP_SYS_PTRACE, with access to `/dev/userfaultfd`, or where
//! the sysctl `vm.unprivileged_userfaultfd` is 1. Without any of these the [`Gate`] makes the calls
//! of the C library work. Where it may not, or cannot, [`Swap::serves_system_calls`] returns false:
//! a system call on memory that is swapped out then fails with EFAULT, never with wrong bytes,
//! unless the range is pinned. [`Region::read_from`] and [`Region::write_to`] pin piece by piece. A
//! container's seccomp filter may forbid userfaultfd altogether; [`SwapBuilder::build`] then
//! returns [`Error::NoUserfault`].
//!
//! # Threads of the engine
//!
//! A swap has three threads, or six with [`SwapBuilder::sigbus`]. They take no signals and have a
//! descriptor table of their own. If one of them cannot go on (a bug, or a failed system call that
//! may not fail), it aborts the process with one message, so that no thread waits forever.
#![warn(missing_docs)]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[cfg(feature = "allocator-api2")]
mod allocator;
mod aside;
mod clone;
mod clusters;
mod device;
mod device_text;
mod error;
mod gate;
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
mod thrashing;
mod transfer;

#[cfg(feature = "allocator-api2")]
pub use allocator::RegionAllocator;
pub use device::Device;
pub use error::Error;
pub use folioswap_policy::tiers::TiersError;
pub use gate::Gate;
pub use group::GroupBuilder;
pub use overcommit::WhenFull;
pub use pin::Pin;
pub use region::Region;
pub use scope::MemoryScope;
pub use shmem::{HugePolicy, ShmemBuilder, ShmemError, ShmemObject, ShmemSpace, ShmemStatistics};
pub use size::IntoBytes;
pub use statistics::Statistics;
pub use swap::{FaultMode, LEAST_LIMIT, Swap, SwapBuilder};
pub use thrashing::Notices;

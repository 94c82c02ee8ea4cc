//! A tmpfs over FUSE whose contents live within a memory limit. Each file is a shmem object.
//!
//! ```text
//!  kernel ── /dev/fuse ── server ── tmpfs ──┬── namespace   names -> inodes
//!             requests                      ├── table       inodes that the kernel knows
//!                  ▲                        ├── inode       attributes, xattrs, one shmem object
//!                  └── invalidator ──────── └── kernel_cache, account: the bounded page cache
//! ```
//!
//! Start reading at [`mount`]. `docs/reference/tmpfs.md` lists the FUSE features in use, with
//! reasons.

mod account;
#[cfg(not(feature = "parts"))]
mod acl;
#[cfg(feature = "parts")]
pub mod acl;
mod answers;
mod attach;
mod contents;
mod control;
mod inode;
mod kernel_cache;
mod limits;
mod mount;
mod namespace;
mod server;
mod table;
mod tmpfs;
mod xattr;

pub use control::{MEMORY, SIZE, SWAPOFF, Swapoff, TIERS, UnknownState, Within};
pub use folioswap_shmem::{Discard, HugePolicy, SwapDevice};
pub use kernel_cache::KernelCacheStatistics;
pub use mount::{MEMORY_MIN, MountError, MountOptions, Mounted, SOURCE, Shares, mount, shares};
pub use server::Caching;

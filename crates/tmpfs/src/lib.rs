//! A tmpfs over FUSE whose contents live within a memory limit: shmem objects as files.
//!
//! ```text
//!  kernel ── /dev/fuse ── server ── tmpfs ──┬── namespace   names -> inodes
//!             requests                      ├── table       inodes that the kernel knows
//!                  ▲                        ├── inode       attributes, xattrs, a shmem object each
//!                  └── invalidator ──────── └── kernel_cache, account: what the page cache holds of it, bounded
//! ```
//!
//! Start reading at [`mount`]; `docs/tmpfs.md` says which of the kernel's ways are used, and why.

mod account;
mod acl;
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

pub use control::{SWAPOFF, Swapoff};
pub use folioswap_shmem::{Discard, HugePolicy, SwapDevice};
pub use kernel_cache::KernelCacheStatistics;
pub use mount::{MEMORY_MIN, MountError, MountOptions, Mounted, SOURCE, Shares, mount, shares};
pub use server::Caching;

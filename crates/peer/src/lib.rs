//! The kernel's own swap as peer: a memory cgroup, zram devices and settings of huge pages, all put
//! back on drop, also while unwinding. Needs root.
//!
//! | To find | look in |
//! |---|---|
//! | the lock that whoever changes the machine's swap must hold | `swap_lock.rs` |
//! | a zram device as swap | `zram.rs` |
//! | the kernel's settings of transparent huge pages | `huge.rs` |
//! | a memory cgroup: limit, statistics, OOM kills, ending all inside | `cgroup.rs` |
//! | the processor time of a process tree | `cpu.rs` |
//!
//! A killed process leaves its devices, settings and groups behind; the next one removes them
//! ([`SwapLock::remove_stale`], [`Cgroup::remove_stale`]).

mod cgroup;
mod cpu;
mod huge;
mod mounts;
mod swap_lock;
mod zram;

pub use cgroup::{Cgroup, Reader, Version, controller};
pub use cpu::CpuGroup;
pub use huge::{FolioSizes, HugePages, chosen};
pub use swap_lock::SwapLock;
pub use zram::{HIGHEST_PRIORITY, Zram};

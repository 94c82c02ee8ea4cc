//! The kernel's own swap as peer: a memory cgroup, zram devices and settings of huge pages, put back on drop, also while unwinding.
//!
//! Needs root. What a killed process leaves behind, the next one removes ([`Turn::remove_stale`], [`Cgroup::remove_stale`]).

mod cgroup;
mod cpu;
mod huge;
mod turn;
mod zram;

pub use cgroup::{Cgroup, Reader, Version, controller};
pub use cpu::CpuGroup;
pub use huge::{FolioSizes, HugePages, chosen};
pub use turn::Turn;
pub use zram::{HIGHEST_PRIORITY, Zram};

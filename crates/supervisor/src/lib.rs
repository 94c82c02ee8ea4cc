//! The owner of a running group.
//!
//! `folioswap run` forks: the process that the user started becomes the *front*, its child the *supervisor*. The
//! supervisor owns everything that the members of the group share (segment, devices, socket), starts CMD, and stays
//! until the last descendant has ended. [`run`] is that process; it never returns.
//!
//! | Room | It holds |
//! |---|---|
//! | [`supervisor`] | the poll loop and each decision in it: members, swapon, swapoff, failures, the end |
//! | [`clusters`] | the owners of each cluster of the shared devices |
//! | [`devices`] | the devices of a group, prepared before anything is started, and the service of network devices |
//! | [`swap_option`] | the value of `--swap`, read |
//! | [`processes`] | the tree below the supervisor: its start, its census, memory without a pager, its end |
//! | [`report`] | the figures of the group, and the report on them as text and JSON |
//! | [`recording`] | the trace of allocations of all members, merged by time |
//! | [`ipc`] | sockets and memory between processes: members, front, and whoever asks about a group |
//!
//! Arrows between the rooms point down in this order: `supervisor` uses all others; `clusters` uses `devices`;
//! `devices` uses `swap_option` and `processes`; `report` uses `processes` and `recording`; `ipc` uses `devices`
//! (the names of devices) and `processes`.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("folioswap-supervisor runs on x86_64 Linux only: it depends on that kernel's userfaultfd");

mod clusters;
pub mod devices;
pub mod ipc;
pub mod machine;
pub mod processes;
pub mod recording;
pub mod report;
pub mod size;
mod supervisor;
pub mod swap_option;

pub use supervisor::{Settings, run};

/// Exit status of our own refusals, as in env(1).
pub const STATUS_REFUSED: i32 = 125;

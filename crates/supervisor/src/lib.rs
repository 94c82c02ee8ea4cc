//! The owner of a running group.
//!
//! `folioswap run` forks: the process that the user started becomes the *front*, its child the
//! *supervisor*. The supervisor owns everything that the members of the group share (memory,
//! devices, socket), starts CMD, and stays until the last descendant has ended. [`run()`] is that
//! process; it never returns. README.md says where each thing is.
//!
//! Arrows between the modules point down in this order: the private `supervisor` (the poll loop and
//! its decisions) uses all others; [`view`] uses [`report`] and [`ipc`]; [`report`] uses
//! [`course`], [`recording`] and [`processes`]; [`course`] uses [`processes`]; [`recording`] uses
//! [`ipc`]; [`ipc`] uses [`devices`] and [`processes`]; the private `clusters` uses [`devices`];
//! [`devices`] uses [`swap_option`] and [`processes`]; [`processes`] and [`swap_option`] use
//! [`size`] and [`suggestion`].

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
compile_error!(
    "folioswap-supervisor runs on Linux on x86_64 and aarch64: it depends on that kernel's userfaultfd"
);

mod clusters;
pub mod course;
pub mod devices;
pub mod ipc;
pub mod machine;
pub mod processes;
pub mod recording;
pub mod report;
pub mod size;
pub mod suggestion;
mod supervisor;
pub mod swap_option;
pub mod view;

pub use supervisor::{Settings, run};

/// Exit status of our own refusals, as in env(1).
pub const STATUS_REFUSED: i32 = 125;

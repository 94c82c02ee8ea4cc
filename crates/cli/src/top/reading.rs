//! One reading of everything.

use crate::operate::{
    mounts::{self, MountSnapshot},
    ps,
};
use folioswap_supervisor::view::GroupSnapshot;
use std::{fs, time::Instant};

/// All groups and mounts at one moment, and the machine's memory.
pub struct Reading {
    /// When it was made.
    pub at: Instant,
    /// The time of day, for the screen.
    pub clock: String,
    /// The groups.
    pub groups: Vec<GroupSnapshot>,
    /// The mounts.
    pub mounts: Vec<MountSnapshot>,
    /// The machine's memory, in bytes.
    pub ram: u64,
    /// What of it is available, in bytes.
    pub available: u64,
}

impl Reading {
    /// Reads everything now.
    pub fn now() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let bytes = |key: &str| {
            let value = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
            value.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
        };
        Reading {
            at: Instant::now(),
            clock: clock(),
            groups: ps::groups(),
            mounts: mounts::all(),
            ram: bytes("MemTotal:").unwrap_or(0),
            available: bytes("MemAvailable:").unwrap_or(0),
        }
    }
}

/// The local time of day: `16:02:11`.
fn clock() -> String {
    // SAFETY: time(2) without a result elsewhere; localtime_r writes the structure, of which all
    // zeroes are valid should it fail.
    let local = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const now, &raw mut local);
        local
    };
    format!("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec)
}

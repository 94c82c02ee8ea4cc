//! The files that a confined thread of the pager may open, by Landlock.
//!
//! Source: landlock(7).

use crate::kernel::sys;
use linux_raw_sys::general as raw;
use linux_raw_sys::landlock;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// Every right to files that the first version of Landlock knows: what is not granted is refused.
const EVERYTHING: u64 = (1 << 13) - 1;

/// The kernel's Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// It can be used.
    There,
    /// The kernel has none, it is switched off, or a filter forbids it.
    Missing,
}

/// Asks the kernel.
pub fn look() -> Landlock {
    let version = landlock::LANDLOCK_CREATE_RULESET_VERSION as usize;
    // SAFETY: with this flag the kernel reads nothing.
    let found = unsafe { sys::syscall(raw::__NR_landlock_create_ruleset, [0, 0, version, 0, 0, 0]) };
    if found.is_ok_and(|version| version >= 1) { Landlock::There } else { Landlock::Missing }
}

/// Allows the calling thread, which has no new privileges, to open files beneath these directories
/// for reading and no others in any way, for good. It may not trace others from here on. Files that
/// are open stay so.
///
/// In `/proc` a directory must stay open: the kernel makes it anew when it is looked up again, and
/// the rule means the old one.
///
/// # Errors
/// Those of landlock(7); nothing has changed then.
pub fn read_only_beneath(directories: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let handled =
        landlock::landlock_ruleset_attr { handled_access_fs: EVERYTHING, handled_access_net: 0, scoped: 0 };
    let arguments = [(&raw const handled) as usize, size_of_val(&handled.handled_access_fs), 0, 0, 0, 0];
    // SAFETY: the kernel reads so many bytes of it, and makes a descriptor.
    let rules = unsafe {
        let made = sys::syscall(raw::__NR_landlock_create_ruleset, arguments)?;
        OwnedFd::from_raw_fd(made as i32)
    };
    for directory in directories {
        let rule = landlock::landlock_path_beneath_attr {
            allowed_access: u64::from(landlock::LANDLOCK_ACCESS_FS_READ_FILE),
            parent_fd: directory.as_fd().as_raw_fd(),
        };
        let kind = landlock::landlock_rule_type::LANDLOCK_RULE_PATH_BENEATH as usize;
        let arguments = [rules.as_raw_fd() as usize, kind, (&raw const rule) as usize, 0, 0, 0];
        // SAFETY: the kernel reads the rule.
        unsafe { sys::syscall(raw::__NR_landlock_add_rule, arguments) }?;
    }
    // SAFETY: the call has no further arguments.
    unsafe { sys::syscall(raw::__NR_landlock_restrict_self, [rules.as_raw_fd() as usize, 0, 0, 0, 0, 0]) }
        .map(drop)
}

#[cfg(test)]
mod tests;

//! `folioswap umount`, and the unmount by the daemon itself.

use super::{MountCommandError, mounts};
use crate::{error::Error, mount::arguments::UmountArguments};
use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use std::{path::Path, process::Command};

/// The treatment of a mount that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUse {
    /// The mount stays.
    Refused,
    /// The mount goes out of sight, and ends with its last user.
    Detached,
}

/// The command `umount`.
///
/// # Errors
/// [`MountCommandError`]; the mount is still there then.
pub fn umount(arguments: &UmountArguments) -> Result<i32, Error> {
    let given = || arguments.directory.clone();
    let directory = mounts::resolve(&arguments.directory)
        .map_err(|source| MountCommandError::Directory { directory: given(), source })?;
    if mounts::ours_at(&directory).is_none() {
        return Err(MountCommandError::NotMounted(given()).into());
    }
    let in_use = if arguments.lazy { InUse::Detached } else { InUse::Refused };
    take_down(&directory, in_use)?;
    Ok(0)
}

/// Unmounts a mount of ours; without root through fusermount3.
///
/// # Errors
/// `Busy`, `Unmount`.
pub fn take_down(directory: &Path, in_use: InUse) -> Result<(), MountCommandError> {
    let flags = match in_use {
        InUse::Refused => UnmountFlags::NOFOLLOW,
        InUse::Detached => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match unmount(directory, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountCommandError::Busy(directory.to_owned())),
        Err(Errno::PERM) => through_helper(directory, in_use),
        Err(error) => {
            Err(MountCommandError::Unmount { directory: directory.to_owned(), reason: error.to_string() })
        }
    }
}

fn through_helper(directory: &Path, in_use: InUse) -> Result<(), MountCommandError> {
    let failed = |reason: String| MountCommandError::Unmount { directory: directory.to_owned(), reason };
    let lazy = match in_use {
        InUse::Refused => None,
        InUse::Detached => Some("-z"),
    };
    let output = Command::new("fusermount3").arg("-u").args(lazy).arg("--").arg(directory).output();
    let output = output.map_err(|error| {
        failed(format!("fusermount3: {error}; it is in the package fuse3, or unmount as root"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.contains("busy") { Err(MountCommandError::Busy(directory.to_owned())) } else { Err(failed(said)) }
}

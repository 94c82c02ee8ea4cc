//! `folioswap swapoff DIR DEVICE`: takes a device of a mount out of use while the mount is used.
//!
//! The daemon does the work in a thread of its own. This command names the device and asks for the
//! progress until the work is done ([`folioswap_tmpfs::Swapoff`]).

use super::{MountCommandError, mounts};
use crate::{device_name, error::Error, interrupt::Signals};
use folioswap_tmpfs::{SWAPOFF, Swapoff};
use rustix::{
    fs::{XattrFlags, getxattr, removexattr, setxattr},
    io::Errno,
};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// The time between two questions.
const PAUSE: Duration = Duration::from_millis(20);
/// The room for an answer, in bytes: the table of devices fits.
const ANSWER_MAX: usize = 64 << 10;

/// The command `swapoff` for a mount.
///
/// # Errors
/// [`MountCommandError`]. The device is in use as before, except after `Lost`.
pub fn swapoff(given: &Path, device: &Path) -> Result<i32, Error> {
    let directory = mounts::resolve(given)
        .map_err(|source| MountCommandError::Directory { directory: given.to_owned(), source })?;
    if mounts::ours_at(&directory).is_none() {
        return Err(MountCommandError::NotMounted(given.to_owned()).into());
    }
    let device = named(&directory, device)?;
    let failed = |reason: String| MountCommandError::Swapoff { device: device.clone(), reason };
    let signals = Signals::block();
    let begun = setxattr(&directory, SWAPOFF, device.as_os_str().as_bytes(), XattrFlags::empty());
    begun.map_err(|errno| match errno {
        Errno::BUSY => failed("another swapoff of this mount is under way".to_owned()),
        Errno::PERM => failed("only root or who mounted it may do that".to_owned()),
        errno => failed(errno.to_string()),
    })?;
    loop {
        if signals.one_came_within(PAUSE) {
            // The swapoff ends soon, cancelled or done.
            let _ = removexattr(&directory, SWAPOFF);
        }
        let told = ask(&directory, SWAPOFF).map_err(|errno| failed(errno.to_string()))?;
        match String::from_utf8_lossy(&told).parse() {
            Ok(Swapoff::Running) => {}
            Ok(Swapoff::Done { lost: 0, .. }) => return Ok(0),
            Ok(Swapoff::Done { lost, .. }) => {
                return Err(MountCommandError::Lost { device, pages: lost }.into());
            }
            Ok(Swapoff::Failed(reason)) => return Err(failed(reason).into()),
            Err(_) => return Err(failed("the daemon speaks another version".to_owned()).into()),
        }
    }
}

fn ask(directory: &Path, attribute: &str) -> Result<Vec<u8>, Errno> {
    let mut answer = vec![0; ANSWER_MAX];
    let length = getxattr(directory, attribute, &mut answer[..])?;
    answer.truncate(length);
    Ok(answer)
}

/// The name that the mount has for a device. `given` is that name, or a path to it.
fn named(directory: &Path, given: &Path) -> Result<PathBuf, MountCommandError> {
    let swaps = ask(directory, "folioswap.swaps").map_err(|errno| MountCommandError::Swapoff {
        device: given.to_owned(),
        reason: errno.to_string(),
    })?;
    let names: Vec<PathBuf> = swaps.split(|&byte| byte == b'\n').skip(1).filter_map(name_in).collect();
    device_name::find(&names, given).map(|index| names[index].clone()).ok_or_else(|| {
        let (directory, device) = (directory.to_owned(), given.to_owned());
        MountCommandError::NoDevice { directory, device, have: device_name::list(&names) }
    })
}

/// The name at the start of a line of the table.
fn name_in(line: &[u8]) -> Option<PathBuf> {
    let end = line.iter().position(|&byte| byte == b'\t')?;
    Some(mounts::unescape(&line[..end]))
}

#[cfg(test)]
mod tests;

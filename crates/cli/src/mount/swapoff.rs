//! `folioswap swapoff`: a device of a mount is taken out of use, while the mount is used.
//!
//! The daemon does it, in a thread of its own; here it is told which device, and asked until it is done ([`folioswap_tmpfs::Swapoff`]).

use super::{MountCommandError, mounts};
use crate::{device_name, error::Error};
use folioswap_tmpfs::{SWAPOFF, Swapoff};
use rustix::{
    fs::{XattrFlags, getxattr, removexattr, setxattr},
    io::Errno,
};
use std::{
    mem::MaybeUninit,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Between two questions.
const PAUSE_NS: i64 = 20_000_000;
/// The table of devices and any answer fit.
const ANSWER_MAX: usize = 64 << 10;

/// The command `swapoff` for a mount.
///
/// # Errors
/// [`MountCommandError`]; but for `Lost`, the device is in use as before.
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
        if signals.one_came_within(PAUSE_NS) {
            // It ends soon, one way or the other.
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
            Err(()) => return Err(failed("the daemon speaks another version".to_owned()).into()),
        }
    }
}

fn ask(directory: &Path, attribute: &str) -> Result<Vec<u8>, Errno> {
    let mut answer = vec![0; ANSWER_MAX];
    let length = getxattr(directory, attribute, &mut answer[..])?;
    answer.truncate(length);
    Ok(answer)
}

/// The mount's name of a device: as given, or as a path from the root.
fn named(directory: &Path, given: &Path) -> Result<PathBuf, MountCommandError> {
    let swaps = ask(directory, "folioswap.swaps").map_err(|errno| MountCommandError::Swapoff {
        device: given.to_owned(),
        reason: errno.to_string(),
    })?;
    let names: Vec<PathBuf> = swaps.split(|&byte| byte == b'\n').skip(1).filter_map(name_in).collect();
    device_name::find(&names, given).map(|place| names[place].clone()).ok_or_else(|| {
        let (directory, device) = (directory.to_owned(), given.to_owned());
        MountCommandError::NoDevice { directory, device, have: device_name::list(&names) }
    })
}

/// The name at the start of a line of the table, whose `\ooo` are bytes.
fn name_in(line: &[u8]) -> Option<PathBuf> {
    let end = line.iter().position(|&byte| byte == b'\t')?;
    let (mut rest, mut name) = (&line[..end], Vec::new());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let octal = after.get(..3).filter(|_| byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                name.push(escaped);
                rest = &after[3..];
            }
            None => name.push(byte),
        }
    }
    Some(std::ffi::OsString::from_vec(name).into())
}

/// SIGINT and SIGTERM, which are waited for.
struct Signals(libc::sigset_t);

impl Signals {
    /// From now on they are noticed only where they are asked for.
    fn block() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the set is initialised by the first call; the numbers are valid; the mask is that of this thread, the only one.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            Signals(set.assume_init())
        }
    }

    fn one_came_within(&self, nanoseconds: i64) -> bool {
        let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
        // SAFETY: the set is initialised, nothing else is wanted, and the time lives through the call.
        unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const time) > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_they_were() {
        assert_eq!(name_in(b"/var/tmp\tfile\t1024\t0\t-1"), Some("/var/tmp".into()));
        assert_eq!(name_in(b"/a\\040b\\134\\303\\244\tfile"), Some("/a b\\\u{e4}".into()));
        assert_eq!(name_in(b"/odd\\9\t"), Some("/odd\\9".into()));
        assert_eq!(name_in(b""), None);
    }
}

//! What a job may do: with or without CAP_SYS_PTRACE.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const DEVICE: &CStr = c"/dev/userfaultfd";

/// What the program, folioswap included, may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// What its user may.
    OfUser,
    /// The same without CAP_SYS_PTRACE, which asks for reports of forks.
    WithoutSysPtrace,
}

/// A node like `/dev/userfaultfd`, in this directory, that everybody may open.
pub(super) fn device_for_all(directory: &Path) -> CString {
    let path = directory.join("userfaultfd");
    let number = fs::metadata(DEVICE.to_str().expect("ASCII")).map_or(0, |device| device.rdev());
    let path = CString::new(path.into_os_string().into_vec()).expect("a path");
    // SAFETY: the path is a string.
    let made = unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o666, number) };
    assert_eq!(made, 0, "mknod: {}", io::Error::last_os_error());
    // SAFETY: as above; the mode of mknod is masked.
    assert_eq!(unsafe { libc::chmod(path.as_ptr(), 0o666) }, 0, "chmod");
    path
}

/// Lets this process, and what it starts, see `device` in place of the real one, and have no
/// CAP_SYS_PTRACE after the next exec.
pub(super) fn give_up_sys_ptrace(device: &CStr) -> io::Result<()> {
    const CAP_SYS_PTRACE: libc::c_ulong = 19;
    let nothing = std::ptr::null();
    // SAFETY: strings, and no data.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, libc::MS_REC | libc::MS_PRIVATE, nothing.cast())
                == 0
            && libc::mount(device.as_ptr(), DEVICE.as_ptr(), nothing, libc::MS_BIND, nothing.cast()) == 0
            && libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

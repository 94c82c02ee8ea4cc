//! The mount itself: mount(2) as root, fusermount3 without.
//!
//! `fuser` can mount too, but it then unmounts the path when its session ends, whatever is mounted
//! there by then: its test of whether the mount still exists (0.18, `is_mounted`) takes an ended
//! connection for a live one. So `fuser` gets the descriptor of a mount that we made.

use crate::mount::SOURCE;
use rustix::{
    io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd},
    mount::{MountFlags, UnmountFlags},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use std::{
    ffi::CString,
    fs::File,
    io::{self, IoSliceMut, Read},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::MetadataExt, net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
};

/// The helper that mounts and unmounts without root.
const HELPER: &str = "fusermount3";
/// The variable in which the helper finds the number of the socket to send the descriptor over
/// (fusermount3(1)).
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Mounts on a directory. Returns the descriptor over which the kernel's requests come. `device` is
/// /dev/fuse, opened.
///
/// # Errors
/// Those of mount(2), or the message of fusermount3. Nothing is mounted then.
pub fn attach(directory: &Path, device: File) -> io::Result<OwnedFd> {
    match by_system_call(directory, device) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => through_helper(directory),
        result => result,
    }
}

/// Unmounts a new mount that cannot be served.
pub fn detach(directory: &Path) {
    if rustix::mount::unmount(directory, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) == Err(Errno::PERM) {
        drop(Command::new(HELPER).args(["-u", "-z", "--"]).arg(directory).stderr(Stdio::null()).status());
    }
}

fn by_system_call(directory: &Path, device: File) -> io::Result<OwnedFd> {
    // A daemon replaces descriptors 0 to 2 with new files, so the device must not be one of them.
    let device = rustix::io::fcntl_dupfd_cloexec(&device, 3)?;
    let root_mode = std::fs::metadata(directory)?.mode();
    let options = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let options = CString::new(options)?;
    rustix::mount::mount(SOURCE, directory, "fuse", MountFlags::empty(), options.as_c_str())?;
    Ok(device)
}

/// Has the helper mount and send the descriptor over a socket.
fn through_helper(directory: &Path) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut options = format!("fsname={SOURCE},default_permissions");
    options +=
        if rustix::process::geteuid().is_root() { ",dev,suid,allow_other" } else { ",subtype=folioswap" };
    let mut helper = Command::new(HELPER);
    helper.args(["-o", &options, "--"]).arg(directory);
    helper.env(HELPER_SOCKET, theirs.as_raw_fd().to_string());
    helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let number = theirs.as_fd().as_raw_fd();
    let keep_open = move || {
        // SAFETY: the parent keeps the socket open until the helper has started, so the child has
        // it too.
        let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        Ok(fcntl_setfd(socket, fcntl_getfd(socket)? - FdFlags::CLOEXEC)?)
    };
    // SAFETY: the closure makes system calls only.
    unsafe { helper.pre_exec(keep_open) };
    let mut child = helper.spawn()?;
    drop(theirs);
    let received = receive(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        drop(stderr.read_to_string(&mut said));
    }
    let status = child.wait()?;
    match received {
        Ok(Some(device)) if status.success() => Ok(device),
        Ok(_) => Err(io::Error::other(format!("{HELPER}: {}", said.trim()))),
        Err(error) => Err(error),
    }
}

/// Receives a descriptor over a socket; `None`: the socket was closed without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

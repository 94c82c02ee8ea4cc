//! The agent that is preloaded: it is embedded in the command and put into memory at run time, so
//! that no file is left behind.
//!
//! Its path goes through the supervisor's descriptors and may outlive the run in somebody's
//! environment. It is made so that it cannot come to mean another file
//! (`docs/decisions/0038-the-agents-name.md`).

use crate::error::Error;
use folioswap_group::protocol::SOCKET_SUFFIX;
use folioswap_supervisor::{ipc::wire, processes::descriptors};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, openat},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags},
};
use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The agent that `build.rs` built; empty when the source tree had no agent.
static EMBEDDED: &[u8] = include_bytes!(env!("FOLIOSWAP_AGENT_FILE"));

/// The agent in memory.
pub struct Agent {
    /// The descriptor through which the dynamic linker reaches it, as long as this process lives.
    pub descriptor: OwnedFd,
    /// Its name in the directory that the descriptor is; `None` when the descriptor is the agent.
    pub name: Option<String>,
    /// The group's socket in that directory, for members in other network namespaces; `None` where
    /// there is no directory.
    pub socket: Option<OwnedFd>,
}

/// Puts the agent into memory; `None` when the developer asked for no agent.
///
/// # Errors
/// This build has no agent, the file of `--agent` is unreadable, or the memfd cannot be made.
pub fn prepare(chosen: Option<&Path>) -> Result<Option<Agent>, Error> {
    let bytes: Cow<'static, [u8]> = match chosen {
        Some(path) if path == Path::new("none") => return Ok(None),
        Some(path) => {
            Cow::Owned(fs::read(path).map_err(|source| Error::Agent { path: path.to_owned(), source })?)
        }
        None if EMBEDDED.is_empty() => return Err(Error::NoAgent),
        None => Cow::Borrowed(EMBEDDED),
    };
    match in_directory(&bytes) {
        Ok(agent) => Ok(Some(agent)),
        // Only root may mount, and not in every container.
        Err(_) => in_memfd(&bytes).map(Some),
    }
}

/// Puts the agent under a name that nobody can guess into a directory in memory, a read-only mount
/// that is in no mount namespace. The kernel frees it with its last descriptor.
fn in_directory(bytes: &[u8]) -> io::Result<Agent> {
    let name = format!("libfolioswap_agent-{}.so", wire::random_digits()?);
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Other users may open a file by its name, and cannot list the names.
    rustix::mount::fsconfig_set_string(&context, "mode", "0711")?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let directory = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(&directory, &name, flags, Mode::empty())?);
    // The mask of the user has no say in the mode.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o555))?;
    file.write_all(bytes)?;
    drop(file);
    let socket = wire::listen_at(&socket_path(directory.as_fd(), &name))?;
    make_read_only(directory.as_fd())?;
    Ok(Agent { descriptor: directory, name: Some(name), socket: Some(socket) })
}

/// The path of the group's socket, in this directory beside the agent of this name.
fn socket_path(directory: BorrowedFd<'_>, agent: &str) -> PathBuf {
    let mut path = OsString::from(format!("/proc/self/fd/{}/{agent}", directory.as_raw_fd()));
    path.push(OsStr::from_bytes(SOCKET_SUFFIX));
    path.into()
}

/// Makes a mount read-only, so that no descendant of root changes the agent for the others.
fn make_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let read_only =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the call reads a terminated string and a structure of the given size; the descriptor
    // is open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const read_only,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts the agent into a sealed memfd with a random descriptor number.
fn in_memfd(bytes: &[u8]) -> Result<Agent, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels from 6.3 can forbid executable memfds unless the flag asks for one; older kernels
    // refuse the flag.
    let memfd = memfd_create("libfolioswap_agent.so", flags | MemfdFlags::EXEC)
        .or_else(|error| {
            if error == Errno::INVAL { memfd_create("libfolioswap_agent.so", flags) } else { Err(error) }
        })
        .map_err(Error::system("memfd_create for the agent"))?;
    let mut file = File::from(memfd);
    file.write_all(bytes).map_err(Error::system("writing the agent to its memfd"))?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
        .map_err(Error::system("sealing the agent's memfd"))?;
    let descriptor = descriptors::at_random_number(file.into()).map_err(Error::system("getrandom"))?;
    Ok(Agent { descriptor, name: None, socket: None })
}

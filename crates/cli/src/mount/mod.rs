//! `folioswap mount` and `folioswap umount`: a tmpfs whose contents swap.
//!
//! `mount` forks. The child makes the file system, mounts it and serves it (`daemon`). The parent
//! waits until the child reports that the mount is there, or why not, and returns that.

pub mod arguments;
mod daemon;
mod devices;
pub mod helper;
pub mod mounts;
pub(crate) mod swapoff;
mod umount;

pub use swapoff::swapoff;
pub use umount::umount;

use crate::{error::Error, host};
use arguments::MountArguments;
use devices::MountDevices;
use folioswap_devices::check_page_size;
use folioswap_supervisor::{
    devices::{DeviceError, networks::NetworkError},
    processes::limits::Limits,
    size,
};
use folioswap_tmpfs::{Caching, MountError, MountOptions};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The size of a page, in bytes.
const PAGE_SIZE: u64 = folioswap_devices::PAGE_SIZE as u64;

/// Why nothing was mounted, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountCommandError {
    /// The mount point does not exist.
    #[error("mount point {} does not exist: make it with `mkdir -p {}`", .0.display(), .0.display())]
    Missing(PathBuf),
    /// The mount point is not a directory.
    #[error("mount point {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The mount point is a mount of ours already.
    #[error("{} is a folioswap mount already: unmount it first with `folioswap umount {}`", .0.display(), .0.display())]
    Mounted(PathBuf),
    /// The mount point is a FUSE mount whose daemon is gone.
    #[error(
        "{} is a FUSE mount whose daemon is gone (it was killed, or died): clean up with `folioswap umount {}`, then mount again", .0.display(), .0.display()
    )]
    Dead(PathBuf),
    /// The directory cannot be looked at.
    #[error("mount point {}: {source}", directory.display())]
    Directory {
        /// The directory as given.
        directory: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The limit is too small for a daemon.
    #[error(
        "--memory {given} is too small for a mount, whose daemon has threads and tables too: give at least {}",
        size::show(folioswap_tmpfs::MEMORY_MIN)
    )]
    Memory {
        /// The limit, readable.
        given: String,
    },
    /// The limit is above the machine's memory.
    #[error("--memory {given} is more than this machine's RAM ({ram}): give a smaller one, e.g. 1G")]
    MemoryTooLarge {
        /// The limit, readable.
        given: String,
        /// The machine's memory, readable.
        ram: String,
    },
    /// The size has no room for a page.
    #[error("--size {0} leaves no room for contents: give at least 4K, e.g. 8G")]
    Size(u64),
    /// The swap devices cannot be prepared.
    #[error(transparent)]
    Devices(#[from] DeviceError),
    /// A network device cannot be served.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// `discard` on an export, whose server a mount does not tell.
    #[error(
        "--swap {0}: a mount does not tell the server what it does not need any more: leave discard away"
    )]
    NetworkDiscard(String),
    /// The mount failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The daemon reported this error before it was ready.
    #[error("{0}")]
    Daemon(String),
    /// The daemon ended without a report.
    #[error("the daemon ended at its start without a word; `--foreground` may show why")]
    DaemonDied,
    /// A step of the start that always works failed.
    #[error("{doing}: {source}; nothing was mounted")]
    System {
        /// The step.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The mount has no such device.
    #[error("{} has no swap device {}; it has {have}", directory.display(), device.display())]
    NoDevice {
        /// The directory of the mount.
        directory: PathBuf,
        /// The device as given.
        device: PathBuf,
        /// The names of its devices.
        have: String,
    },
    /// A device stays in use.
    #[error("swapoff of {}: {reason}", device.display())]
    Swapoff {
        /// The device.
        device: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A device is off, and pages of it are lost.
    #[error(
        "swapoff of {}: it is off, but {pages} pages of it could not be read: whoever touches one gets EIO until it is overwritten as a whole or freed", device.display()
    )]
    Lost {
        /// The device.
        device: PathBuf,
        /// The number of lost pages.
        pages: u64,
    },
    /// The directory is not a mount of ours.
    #[error("{} is not a folioswap mount; `findmnt -S folioswap` lists them", .0.display())]
    NotMounted(PathBuf),
    /// Files of the mount are in use.
    #[error(
        "{} is in use: end what uses it (`fuser -vm {}` tells), or say `folioswap umount --lazy {}`", .0.display(), .0.display(), .0.display()
    )]
    Busy(PathBuf),
    /// The unmount failed for another reason.
    #[error("unmounting {}: {reason}", directory.display())]
    Unmount {
        /// The directory of the mount.
        directory: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The command `mount`.
///
/// # Errors
/// [`MountCommandError`]; nothing is mounted then.
pub fn mount(arguments: &MountArguments) -> Result<i32, Error> {
    check_page_size(rustix::param::page_size()).map_err(|other| Error::Host(format!("  - {other}")))?;
    let options = options(arguments)?;
    let limits = Limits::capture();
    limits.raise()?;
    let devices = MountDevices::prepare(arguments, &limits)?;
    devices.check_tiers(&options.tiers)?;
    devices.warnings(arguments).iter().for_each(|line| eprint!("{line}"));
    if arguments.foreground {
        daemon::foreground(options, devices)?
    } else {
        daemon::background(options, devices)?
    }
    Ok(0)
}

/// Reads and checks every argument but those of devices, before a process is started.
fn options(arguments: &MountArguments) -> Result<MountOptions, MountCommandError> {
    let ram = host::memory_bytes();
    if arguments.memory < folioswap_tmpfs::MEMORY_MIN {
        return Err(MountCommandError::Memory { given: size::show(arguments.memory) });
    }
    if arguments.memory > ram {
        return Err(MountCommandError::MemoryTooLarge {
            given: size::show(arguments.memory),
            ram: size::show(ram),
        });
    }
    let contents = arguments.size.unwrap_or(ram / 2);
    if contents < PAGE_SIZE {
        return Err(MountCommandError::Size(contents));
    }
    Ok(MountOptions {
        directory: mount_point(&arguments.directory)?,
        memory: arguments.memory,
        memory_max: ram,
        size: contents,
        inodes: arguments.inodes.unwrap_or(ram / PAGE_SIZE / 2),
        huge: arguments.huge.into(),
        devices: Vec::new(),
        tiers: arguments.swap_tiers.clone().unwrap_or_else(|| "all".to_owned()),
        mode: arguments.mode,
        caching: if arguments.direct { Caching::Direct } else { Caching::Kernel },
    })
}

/// Checks the mount point and makes it a path that means the same from every directory.
fn mount_point(given: &Path) -> Result<PathBuf, MountCommandError> {
    let directory = || given.to_owned();
    match fs::metadata(given) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MountCommandError::Missing(directory())),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            Err(MountCommandError::Dead(directory()))
        }
        Err(source) => Err(MountCommandError::Directory { directory: directory(), source }),
        Ok(found) if !found.is_dir() => Err(MountCommandError::NotADirectory(directory())),
        Ok(_) => {
            let path = fs::canonicalize(given)
                .map_err(|source| MountCommandError::Directory { directory: directory(), source })?;
            if mounts::ours_at(&path).is_some() { Err(MountCommandError::Mounted(path)) } else { Ok(path) }
        }
    }
}

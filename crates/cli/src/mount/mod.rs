//! `folioswap mount` and `folioswap umount`: a tmpfs whose contents swap.
//!
//! `mount` forks. The child makes the file system, mounts it and serves it (`daemon`); the parent waits until the child says that it is
//! mounted, or why not, and returns that.

pub mod arguments;
mod daemon;
mod devices;
mod mounts;
mod swapoff;
mod umount;

pub use swapoff::swapoff;
pub use umount::umount;

use crate::{error::Error, host};
use arguments::MountArguments;
use devices::MountDevices;
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

/// Pages of the machine.
const PAGE_SIZE: u64 = 4096;

/// Why nothing was mounted, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountCommandError {
    /// No such directory.
    #[error("mount point {} does not exist: make it with `mkdir -p {}`", .0.display(), .0.display())]
    Missing(PathBuf),
    /// A file or something else.
    #[error("mount point {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// Ours already.
    #[error("{} is a folioswap mount already: unmount it first with `folioswap umount {}`", .0.display(), .0.display())]
    Mounted(PathBuf),
    /// A mount whose daemon is gone.
    #[error(
        "{} is a FUSE mount whose daemon is gone (it was killed, or died): clean up with `folioswap umount {}`, then mount again", .0.display(), .0.display()
    )]
    Dead(PathBuf),
    /// The directory cannot be looked at.
    #[error("mount point {}: {source}", directory.display())]
    Directory {
        /// As given.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Too little memory.
    #[error(
        "--memory {given} is too small for a mount, whose daemon has threads and tables too: give at least {}",
        size::show(folioswap_tmpfs::MEMORY_MIN)
    )]
    Memory {
        /// Readable.
        given: String,
    },
    /// More than there is.
    #[error("--memory {given} is more than this machine's RAM ({ram}): give a smaller one, e.g. 1G")]
    MemoryTooLarge {
        /// Readable.
        given: String,
        /// Readable.
        ram: String,
    },
    /// No contents.
    #[error("--size {0} leaves no room for contents: give at least 4K, e.g. 8G")]
    Size(u64),
    /// Its swap devices.
    #[error(transparent)]
    Devices(#[from] DeviceError),
    /// A network device cannot be served.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A server that would have to be told.
    #[error(
        "--swap {0}: a mount does not tell the server what it does not need any more: leave discard away"
    )]
    NetworkDiscard(String),
    /// The daemon writes its files itself.
    #[error(
        "--swap {0}: a mount does not encrypt files: leave encrypt away, or use an nbd server, which gets pages sealed"
    )]
    EncryptedFile(String),
    /// The mount failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// What the daemon said before it was ready.
    #[error("{0}")]
    Daemon(String),
    /// It said nothing.
    #[error("the daemon ended at its start without a word; `--foreground` may show why")]
    DaemonDied,
    /// A step of the start that always works failed.
    #[error("{doing}: {source}; nothing was mounted")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// No such device there.
    #[error("{} has no swap device {}; it has {have}", directory.display(), device.display())]
    NoDevice {
        /// The mount.
        directory: PathBuf,
        /// As given.
        device: PathBuf,
        /// What there is.
        have: String,
    },
    /// A device stays in use.
    #[error("swapoff of {}: {reason}", device.display())]
    Swapoff {
        /// Which.
        device: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is off, at a price.
    #[error(
        "swapoff of {}: it is off, but {pages} pages of it could not be read: whoever touches one gets EIO until it is overwritten as a whole or freed", device.display()
    )]
    Lost {
        /// Which.
        device: PathBuf,
        /// How many.
        pages: u64,
    },
    /// Nothing to unmount.
    #[error("{} is not a folioswap mount; `findmnt -S folioswap` lists them", .0.display())]
    NotMounted(PathBuf),
    /// Somebody uses it.
    #[error(
        "{} is in use: end what uses it (`fuser -vm {}` tells), or say `folioswap umount --lazy {}`", .0.display(), .0.display(), .0.display()
    )]
    Busy(PathBuf),
    /// It was refused.
    #[error("unmounting {}: {reason}", directory.display())]
    Unmount {
        /// Where.
        directory: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The command `mount`.
///
/// # Errors
/// [`MountCommandError`]; nothing is mounted then.
pub fn mount(arguments: &MountArguments) -> Result<i32, Error> {
    let options = options(arguments)?;
    let limits = Limits::capture();
    limits.raise()?;
    let devices = MountDevices::prepare(arguments, &limits)?;
    devices.warnings(arguments).iter().for_each(|line| eprint!("{line}"));
    if arguments.foreground {
        daemon::foreground(options, devices)?
    } else {
        daemon::background(options, devices)?
    }
    Ok(0)
}

/// Everything but the devices that can be refused before a process is started.
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
        size: contents,
        inodes: arguments.inodes.unwrap_or(ram / PAGE_SIZE / 2),
        huge: arguments.huge.into(),
        devices: Vec::new(),
        mode: arguments.mode,
        caching: if arguments.direct { Caching::Direct } else { Caching::Kernel },
    })
}

/// The mount point, as a path that means the same from everywhere.
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

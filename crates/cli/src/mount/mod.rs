//! `folioswap mount` and `folioswap umount`: a tmpfs whose contents swap.
//!
//! `mount` forks. The child makes the file system, mounts it and serves it (`daemon`); the parent waits until the child says that it is
//! mounted, or why not, and returns that.

pub mod arguments;
mod daemon;
mod mounts;
mod umount;

pub use umount::umount;

use crate::{
    error::Error,
    host, size,
    swap_option::{DeviceOption, DiscardOption},
};
use arguments::MountArguments;
use folioswap_nbd::store::Encryption;
use folioswap_tmpfs::{Caching, MountError, MountOptions, SwapFile};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where the built-in file lies.
const BUILT_IN_DIRECTORY: &str = "/var/tmp";
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
    /// Not for a mount.
    #[error(
        "--swap {0}: a mount swaps to zram, and to one file behind it: e.g. --swap zram --swap file:/var/tmp,size=20G"
    )]
    Swap(String),
    /// Without the compressed store.
    #[error("--swap {0}: a file stands behind the compressed store here: add --swap zram")]
    FileAlone(String),
    /// Both forms.
    #[error(
        "--swap replaces the built-in devices, to which --swap-dir and --swap-max belong: write --swap file:DIR,size=SIZE instead"
    )]
    Mixed,
    /// The swap file would lie in memory.
    #[error("--swap-dir {}: not a directory: name one on a disk, or say --swap-max 0 for compressed memory only", .0.display())]
    SwapDirectory(PathBuf),
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
    if arguments.foreground {
        daemon::foreground(&options)?
    } else {
        daemon::background(&options)?
    }
    Ok(0)
}

/// Everything that can be refused before a process is started.
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
        swap_file: swap_file(arguments)?,
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

/// The directory of the swap file, as a path that means the same from everywhere: the daemon works in another directory than its caller.
fn swap_directory(given: &Path) -> Result<PathBuf, MountCommandError> {
    let refused = || MountCommandError::SwapDirectory(given.to_owned());
    fs::canonicalize(given).ok().filter(|path| path.is_dir()).ok_or_else(refused)
}

/// The file behind the compressed store.
fn swap_file(arguments: &MountArguments) -> Result<Option<SwapFile>, MountCommandError> {
    if arguments.swap.is_empty() {
        let directory = arguments.swap_dir.clone().unwrap_or_else(|| BUILT_IN_DIRECTORY.into());
        return match arguments.swap_max {
            Some(0) => Ok(None),
            max => Ok(Some(SwapFile { directory: swap_directory(&directory)?, max })),
        };
    }
    if arguments.swap_dir.is_some() || arguments.swap_max.is_some() {
        return Err(MountCommandError::Mixed);
    }
    let (mut store, mut file) = (None, None);
    for option in &arguments.swap {
        let refused = || MountCommandError::Swap(option.text.clone());
        match &option.device {
            DeviceOption::Zram if store.is_none() => store = Some(option),
            DeviceOption::File { target, size, discard, uuid: None, encryption: Encryption::None }
                if file.is_none() && *discard == DiscardOption::No =>
            {
                file = Some((option, SwapFile { directory: swap_directory(target)?, max: *size }));
            }
            _ => return Err(refused()),
        }
    }
    match (store, file) {
        (None, Some((option, _))) => Err(MountCommandError::FileAlone(option.text.clone())),
        // Its priority would have to be higher than that of the store, which comes first here.
        (Some(store), Some((option, _))) if option.priority > store.priority => {
            Err(MountCommandError::Swap(option.text.clone()))
        }
        (_, file) => Ok(file.map(|(_, file)| file)),
    }
}

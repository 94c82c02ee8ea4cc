//! Why the devices of a run cannot be had, and what to do then.

use folioswap_devices::{create::CreateError, prepared::PreparedError};
use folioswap_group::devices::DEVICES_MAX;
use folioswap_nbd::{error::ConnectError, key::KeyError};
use rustix::io::Errno;
use std::path::PathBuf;

/// Why the devices cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// `--swap` and the options of the built-in devices.
    #[error(
        "--swap replaces the built-in devices, to which --swap-dir and --swap-max belong: write --swap file:DIR,size=SIZE instead"
    )]
    Mixed,
    /// More than there can be.
    #[error("--swap is given {0} times; there can be at most {DEVICES_MAX} devices")]
    TooMany(usize),
    /// One store for each process is all that there is.
    #[error("--swap zram is given twice: there is one compressed store")]
    StoreTwice,
    /// A store cannot be added.
    #[error(
        "--swap zram: it is each process's own compressed RAM, and cannot be added to a group that runs: give it to `folioswap run`"
    )]
    StoreAdded,
    /// Two files in one directory.
    #[error(
        "--swap file:{} and --swap file:{} are one directory: give it once, with the size of both", .0.display(), .1.display()
    )]
    DirectoryTwice(PathBuf, PathBuf),
    /// Two names of one file or block device.
    #[error("--swap file:{} and --swap file:{} are one file: give it once", .0.display(), .1.display())]
    FileTwice(PathBuf, PathBuf),
    /// A UUID for something that has no header.
    #[error(
        "--swap file:{}: a directory has no UUID: leave uuid= away, or name a file that `folioswap mkswap` has prepared", .0.display()
    )]
    UuidOfDirectory(PathBuf),
    /// A prepared file or block device.
    #[error("--swap file:{}: {source}", target.display())]
    Prepared {
        /// Which.
        target: PathBuf,
        /// Why not.
        source: PreparedError,
    },
    /// More RAM than there is.
    #[error("--swap ram: {asked} are more than this machine's RAM ({ram})")]
    MoreThanRam {
        /// All that was asked for, readable.
        asked: String,
        /// What there is, readable.
        ram: String,
    },
    /// Not a cluster fits.
    #[error(
        "--swap {}: not even 2 MiB may be written there: free some space, or raise the limit with `ulimit -f`", .0.display()
    )]
    NoRoom(PathBuf),
    /// Cluster numbers do not suffice.
    #[error("--swap: all devices together can have at most 1 TiB: give smaller sizes")]
    TooLarge,
    /// CMD may not open so many files.
    #[error(
        "at most {found} open files are allowed here, and with these devices each process needs {needed} of its own: raise the limit with `ulimit -n {needed}`"
    )]
    FewFiles {
        /// The soft limit.
        found: u64,
        /// What is needed.
        needed: u64,
    },
    /// The built-in file.
    #[error("--swap-dir: {0}; or say --swap-max 0 for compressed memory only")]
    BuiltIn(CreateError),
    /// A file of `--swap`.
    #[error("--swap file:{}: {source}", target.display())]
    File {
        /// Where.
        target: PathBuf,
        /// Why not.
        source: CreateError,
    },
    /// An export.
    #[error("--swap {name}: {source}")]
    Nbd {
        /// Where.
        name: String,
        /// Why not.
        source: ConnectError,
    },
    /// No memory for a key.
    #[error(
        "--swap {name}: {source}: raise the limit of locked memory with `ulimit -l`, or write encrypt=no"
    )]
    Key {
        /// Which.
        name: String,
        /// Why not.
        source: KeyError,
    },
    /// No descriptor.
    #[error("--swap {name}: {error}")]
    Clone {
        /// Which.
        name: String,
        /// Why not.
        error: std::io::Error,
    },
    /// One export twice.
    #[error("--swap {0} is given twice: each device needs an export of its own")]
    ExportTwice(String),
    /// More than the export has.
    #[error(
        "--swap {name}: size={asked} is more than the {has} that the export has for pages: give less, or make the export larger"
    )]
    ExportSize {
        /// Where.
        name: String,
        /// What was asked for, readable.
        asked: String,
        /// What there is, readable.
        has: String,
    },
    /// Memory for a device.
    #[error("--swap ram: {0}")]
    Ram(Errno),
}

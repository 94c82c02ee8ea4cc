//! Why the devices of a run cannot be prepared. Each message says what to do then.

use folioswap_devices::{create::CreateError, prepared::PreparedError};
use folioswap_group::devices::DEVICES_MAX;
use folioswap_nbd::error::ConnectError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why the devices cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// `--swap` is given together with options of the built-in devices.
    #[error(
        "--swap replaces the built-in devices, to which --swap-dir and --swap-max belong: write --swap file:DIR,size=SIZE instead"
    )]
    Mixed,
    /// More devices are asked for than a group can have.
    #[error("--swap is given {0} times; there can be at most {DEVICES_MAX} devices")]
    TooMany(usize),
    /// Two compressed stores: each process has exactly one.
    #[error("--swap zram is given twice: there is one compressed store")]
    StoreTwice,
    /// A compressed store for a group that already runs.
    #[error(
        "--swap zram: it is each process's own compressed RAM, and cannot be added to a group that runs: give it to `folioswap run`"
    )]
    StoreAdded,
    /// Two devices in one directory.
    #[error(
        "--swap file:{} and --swap file:{} are one directory: give it once, with the size of both", .0.display(), .1.display()
    )]
    DirectoryTwice(PathBuf, PathBuf),
    /// One file or block device under two names.
    #[error("--swap file:{} and --swap file:{} are one file: give it once", .0.display(), .1.display())]
    FileTwice(PathBuf, PathBuf),
    /// A UUID for a directory, which has no header.
    #[error(
        "--swap file:{}: a directory has no UUID: leave uuid= away, or name a file that `folioswap mkswap` has prepared", .0.display()
    )]
    UuidOfDirectory(PathBuf),
    /// A file or block device cannot be used as prepared.
    #[error("--swap file:{}: {source}", target.display())]
    Prepared {
        /// The file or block device.
        target: PathBuf,
        /// The reason.
        source: PreparedError,
    },
    /// The `ram` devices together are larger than the machine's memory.
    #[error("--swap ram: {asked} are more than this machine's RAM ({ram})")]
    MoreThanRam {
        /// The sum of the sizes asked for, readable.
        asked: String,
        /// The machine's memory, readable.
        ram: String,
    },
    /// The device has no room for a single cluster.
    #[error(
        "--swap {}: not even 2 MiB may be written there: free some space, or raise the limit with `ulimit -f`", .0.display()
    )]
    NoRoom(PathBuf),
    /// The devices need more clusters than a group has numbers for.
    #[error("--swap: all devices together can have at most 1 TiB: give smaller sizes")]
    TooLarge,
    /// CMD may not open as many files as a member needs.
    #[error(
        "at most {found} open files are allowed here, and with these devices each process needs {needed} of its own: raise the limit with `ulimit -n {needed}`"
    )]
    FewFiles {
        /// The soft limit of open files.
        found: u64,
        /// The files that a member needs.
        needed: u64,
    },
    /// The built-in file cannot be made.
    #[error("--swap-dir: {0}; or say --swap-max 0 for compressed memory only")]
    BuiltIn(CreateError),
    /// A temporary file of `--swap` cannot be made.
    #[error("--swap file:{}: {source}", target.display())]
    File {
        /// Its directory.
        target: PathBuf,
        /// The reason.
        source: CreateError,
    },
    /// An export cannot be used.
    #[error("--swap {name}: {source}")]
    Nbd {
        /// The URI of the export.
        name: String,
        /// The reason.
        source: ConnectError,
    },
    /// One export is given twice.
    #[error("--swap {0} is given twice: each device needs an export of its own")]
    ExportTwice(String),
    /// The size asked for is more than the export has.
    #[error(
        "--swap {name}: size={asked} is more than the {has} that the export has for pages: give less, or make the export larger"
    )]
    ExportSize {
        /// The URI of the export.
        name: String,
        /// The size asked for, readable.
        asked: String,
        /// The room for pages on the export, readable.
        has: String,
    },
    /// The memory of a `ram` device cannot be made.
    #[error("--swap ram: {0}")]
    Ram(Errno),
}

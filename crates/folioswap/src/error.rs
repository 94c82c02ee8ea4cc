//! What can go wrong, and what to do about it.

use crate::size::show;
use folioswap_devices::create::CreateError;
use folioswap_group::devices::DEVICES_MAX;
use folioswap_group::nested::{DEPTH_MAX, GROUPS_MAX};
use rustix::io::Errno;
use std::path::PathBuf;

/// Why something was refused. Whatever was refused has changed nothing. Each message says what to do.
///
/// ```
/// use folioswap::{Error, Swap};
///
/// match Swap::builder().limit("1K").build() {
///     Err(Error::LimitTooSmall { least, .. }) => assert_eq!(least, folioswap::LEAST_LIMIT),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A size that cannot be read.
    #[error(
        "{given:?} is not a size: give bytes, or a number with a unit such as \"512M\", \"1.5G\" or \"64KiB\""
    )]
    Size {
        /// As it was given.
        given: String,
    },
    /// No limit was given.
    #[error("no limit was given: call `limit`, for example `Swap::builder().limit(\"512M\")`")]
    NoLimit,
    /// A limit below what the engine needs for itself.
    #[error("a limit of {} is below {}, the least that engine and working memory need: give more", show(*given), show(*least))]
    LimitTooSmall {
        /// In bytes.
        given: u64,
        /// [`crate::LEAST_LIMIT`].
        least: u64,
    },
    /// More devices than there can be.
    #[error("{0} devices are given; there can be at most {DEVICES_MAX}")]
    TooManyDevices(usize),
    /// There is one compressed store.
    #[error("`Device::zram` is given twice: there is one compressed store in a `Swap`")]
    StoreTwice,
    /// A device in words that cannot be read.
    #[error("{given:?} is not a device: {why}")]
    DeviceText {
        /// As it was given.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A device's size is below 2 MiB, or all together are above 1 TiB.
    #[error("a device of {}: give at least 2 MiB for each and at most 1 TiB for all together", show(*.0))]
    DeviceSize(u64),
    /// A priority that is not one.
    #[error("priority {0}: give 0 to 32767; the highest is used first")]
    Priority(i32),
    /// A file device needs a directory.
    #[error("{} is not a directory: name one, in which a temporary file without a name is made", .0.display())]
    NotADirectory(PathBuf),
    /// The swap file cannot be made.
    #[error("no swap file: {0}")]
    File(CreateError),
    /// userfaultfd is not to be had, not even for the faults of user mode.
    #[error(
        "userfaultfd is not allowed here ({0}): a container's filter forbids it, most likely; allow the system call userfaultfd, or give \
         the container /dev/userfaultfd"
    )]
    NoUserfault(Errno),
    /// The kernel lacks a feature.
    #[error(
        "this kernel's userfaultfd lacks what is needed ({0}): Linux 6.8 or later is, with CONFIG_USERFAULTFD"
    )]
    OldKernel(Errno),
    /// The process is managed already.
    #[error(
        "this program runs under `folioswap run`, whose limit holds for all of its memory: do without a `Swap` (`Swap::is_managed_already` \
         tells), or start it without `folioswap run`"
    )]
    UnderRun,
    /// The system gives no memory, descriptor, mapping or thread.
    #[error("{doing}: {errno}; {}", advice(*errno))]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        errno: Errno,
    },
    /// A region of no bytes.
    #[error("a region of zero bytes: give at least one byte")]
    ZeroSize,
    /// More than an address space holds, or than the tables for it find room for within the limit.
    #[error("a region of {}: {why}", show(*bytes))]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// What is too small for it, and what to do.
        why: &'static str,
    },
    /// The range is not in the region.
    #[error("bytes {start}..{end} are not within the region's {length} bytes")]
    OutOfRange {
        /// First byte asked for.
        start: usize,
        /// One past the last.
        end: usize,
        /// The region's length.
        length: usize,
    },
    /// So much cannot stay resident.
    #[error(
        "pinning {} besides {} would leave too little of the limit of {} to work with: pin smaller ranges at a time, or raise the limit",
        show(*bytes), show(*pinned), show(*limit)
    )]
    PinTooLarge {
        /// What was asked for.
        bytes: u64,
        /// What is pinned already.
        pinned: u64,
        /// The limit.
        limit: u64,
    },
    /// The swap was not made for regions of [`crate::FaultMode::Sigbus`].
    #[error(
        "this swap was not made for regions of FaultMode::Sigbus: call `SwapBuilder::sigbus` before `build`"
    )]
    NoSigbus,
    /// [`crate::Swap::close`] was called.
    #[error("the swap is closed: make regions before `close`, or another `Swap`")]
    Closed,
    /// A group may not use a device that there is not, or that the swap around it may not use.
    #[error(
        "there is no device {number} that the swap around it may use: they are numbered from 0 on, in the order in which they were given, \
         {devices} in all"
    )]
    NoSuchDevice {
        /// The number.
        number: usize,
        /// How many devices the swap has.
        devices: usize,
    },
    /// A group that may use no device.
    #[error("a group that may use no device cannot swap out: name at least one")]
    NoDevices,
    /// There are too many groups, or they are too deep.
    #[error("too many groups: there can be {} within a swap at a time, {} deep", GROUPS_MAX - 1, DEPTH_MAX - 1)]
    TooManyGroups,
    /// A device that a space of objects cannot have.
    #[error(
        "{0}: a space of objects has compressed RAM and at most one file behind it, without priorities; leave this device out"
    )]
    ShmemDevice(&'static str),
    /// An object's contents could not be read.
    #[error(transparent)]
    Object(#[from] crate::ShmemError),
    /// The limit has no room for what is to be set aside of it.
    #[error(
        "setting {} aside besides {} would leave less than {} of the limit of {}: ask for less, or raise the limit",
        show(*bytes), show(*aside), show(crate::LEAST_LIMIT), show(*limit)
    )]
    SetAside {
        /// What was asked for.
        bytes: u64,
        /// What is set aside already.
        aside: u64,
        /// The limit.
        limit: u64,
    },
    /// The calling process is a fork of the one that made the swap.
    #[error(
        "this process is a fork of the one that made the swap, and did not inherit its regions: make a `Swap` of its own"
    )]
    Forked,
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOMEM => {
            "free some memory, or raise vm.max_map_count or the limit of address space (`ulimit -v`)"
        }
        Errno::MFILE | Errno::NFILE => "close some files, or raise their limit (`ulimit -n`)",
        Errno::AGAIN => "end some threads, or raise their limit (`ulimit -u`)",
        Errno::BUSY => "another userfaultfd serves this memory",
        _ => "nothing was changed",
    }
}

impl Error {
    /// For a system call that failed.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(Errno) -> Error {
        move |errno| Error::System { doing, errno }
    }
}

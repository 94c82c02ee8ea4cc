//! The library's errors. Each message names the next step.

use crate::size::show;
use folioswap_devices::OtherPageSize;
use folioswap_devices::create::CreateError;
use folioswap_group::devices::DEVICES_MAX;
use folioswap_group::nested::{DEPTH_MAX, GROUPS_MAX};
use folioswap_policy::tiers::TiersError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a call was refused. A refused call has changed nothing, except with [`Error::Transfer`],
/// which says how much was done. Each message names the next step.
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
    /// The text is no size.
    #[error(
        "{given:?} is not a size: give bytes, or a number with a unit such as \"512M\", \"1.5G\" or \"64KiB\""
    )]
    Size {
        /// The text as given.
        given: String,
    },
    /// No limit was given.
    #[error("no limit was given: call `limit`, for example `Swap::builder().limit(\"512M\")`")]
    NoLimit,
    /// The limit is below the engine's own need.
    #[error("a limit of {} is below {}, the least that engine and working memory need: give more", show(*given), show(*least))]
    LimitTooSmall {
        /// The requested limit, in bytes.
        given: u64,
        /// The smallest possible limit, in bytes, such as [`crate::LEAST_LIMIT`].
        least: u64,
    },
    /// More devices were given than a swap can have.
    #[error("{0} devices are given; there can be at most {DEVICES_MAX}")]
    TooManyDevices(usize),
    /// Compressed RAM was given twice.
    #[error("`Device::zram` is given twice: there is one compressed store in a `Swap`")]
    StoreTwice,
    /// The text is no device.
    #[error("{given:?} is not a device: {why}")]
    DeviceText {
        /// The text as given.
        given: String,
        /// The reason, and the next step.
        why: &'static str,
    },
    /// A device is smaller than 2 MiB, or all together are larger than 1 TiB. In bytes.
    #[error("a device of {}: give at least 2 MiB for each and at most 1 TiB for all together", show(*.0))]
    DeviceSize(u64),
    /// The priority is out of range.
    #[error("priority {0}: give 0 to 32767; the highest is used first")]
    Priority(i32),
    /// The path of a file device is no directory.
    #[error("{} is not a directory: name one, in which a temporary file without a name is made", .0.display())]
    NotADirectory(PathBuf),
    /// The swap file cannot be made.
    #[error("no swap file: {0}")]
    File(CreateError),
    /// The process may not use userfaultfd, not even for faults of user mode.
    #[error(
        "userfaultfd is not allowed here ({0}): a container's filter forbids it, most likely; allow the system call userfaultfd, or give \
         the container /dev/userfaultfd"
    )]
    NoUserfault(Errno),
    /// The kernel's userfaultfd lacks a feature.
    #[error(
        "this kernel's userfaultfd lacks what is needed ({0}): Linux 6.8 or later is (6.10 on aarch64), with CONFIG_USERFAULTFD"
    )]
    OldKernel(Errno),
    /// The kernel's pages have another size than 4 KiB.
    #[error("{0}")]
    PageSize(#[from] OtherPageSize),
    /// The process runs under `folioswap run`.
    #[error(
        "this program runs under `folioswap run`, whose limit holds for all of its memory: do without a `Swap` (`Swap::is_managed_already` \
         tells), or start it without `folioswap run`"
    )]
    UnderRun,
    /// The system has no memory, descriptor, mapping or thread to give.
    #[error("{doing}: {errno}; {}", advice(*errno))]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        errno: Errno,
    },
    /// read(2) or write(2) between a descriptor and a region failed. Nothing was done after it.
    #[error("{doing}: {errno}, after {} were transferred", show(*done as u64))]
    Transfer {
        /// The direction.
        doing: &'static str,
        /// The system call's error.
        errno: Errno,
        /// The bytes that were transferred before.
        done: usize,
    },
    /// A region of no bytes was requested.
    #[error("a region of zero bytes: give at least one byte")]
    ZeroSize,
    /// The region does not fit into the address space, or its tables do not fit into the limit.
    #[error("a region of {}: {why}", show(*bytes))]
    TooLarge {
        /// The requested bytes.
        bytes: u64,
        /// The bound that was exceeded, and the next step.
        why: &'static str,
    },
    /// The range does not lie in the region.
    #[error("bytes {start}..{end} are not within the region's {length} bytes")]
    OutOfRange {
        /// The first byte of the range.
        start: usize,
        /// One past the last byte of the range.
        end: usize,
        /// The region's length.
        length: usize,
    },
    /// More than half of the limit would be pinned.
    #[error(
        "pinning {} besides {} would leave too little of the limit of {} to work with: pin smaller ranges at a time, or raise the limit",
        show(*bytes), show(*pinned), show(*limit)
    )]
    PinTooLarge {
        /// The requested bytes.
        bytes: u64,
        /// The bytes that are pinned already.
        pinned: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The swap was made without [`crate::SwapBuilder::sigbus`].
    #[error(
        "this swap was not made for regions of FaultMode::Sigbus: call `SwapBuilder::sigbus` before `build`"
    )]
    NoSigbus,
    /// [`crate::Swap::close`] was called.
    #[error("the swap is closed: make regions before `close`, or another `Swap`")]
    Closed,
    /// A group names a device that does not exist, or that the swap around it may not use.
    #[error(
        "there is no device {number} that the swap around it may use: they are numbered from 0 on, in the order in which they were given, \
         {devices} in all"
    )]
    NoSuchDevice {
        /// The number of the device.
        number: usize,
        /// The number of devices of the swap.
        devices: usize,
    },
    /// A list of tiers is none.
    #[error("tiers of swap: {0}")]
    Tiers(TiersError),
    /// A group may use no device, by its own tiers and those of the groups around it.
    #[error(
        "a group that may use no device cannot swap out: name at least one, in the tiers of all groups around it"
    )]
    NoDevices,
    /// There are too many groups, or they are nested too deeply.
    #[error("too many groups: there can be {} within a swap at a time, {} deep", GROUPS_MAX - 1, DEPTH_MAX - 1)]
    TooManyGroups,
    /// A space of objects cannot have this device.
    #[error(
        "{0}: a space of objects has compressed RAM and at most one file behind it, without priorities; leave this device out"
    )]
    ShmemDevice(&'static str),
    /// An object's contents could not be read.
    #[error(transparent)]
    Object(#[from] crate::ShmemError),
    /// The limit has no room for the bytes that are to be set aside.
    #[error(
        "setting {} aside besides {} would leave less than {} of the limit of {}: ask for less, or raise the limit",
        show(*bytes), show(*aside), show(crate::LEAST_LIMIT), show(*limit)
    )]
    SetAside {
        /// The requested bytes.
        bytes: u64,
        /// The bytes that are set aside already.
        aside: u64,
        /// The limit, in bytes.
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
    /// Returns a conversion of a failed system call's error.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(Errno) -> Error {
        move |errno| Error::System { doing, errno }
    }
}

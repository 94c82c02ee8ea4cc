//! Errors, and the caller's way out of each.

use folioswap_policy::tiers::TiersError;
use folioswap_slots::SwapEntry;

/// Why an operation on an object was not done, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShmemError {
    /// The content is as large as it may be, or memory and swap space are both full (ENOSPC). No
    /// stored content is lost: free or truncate some and try again.
    #[error("no space left: content, memory or swap space are at their limit")]
    NoSpace,
    /// A page of the range could not be read back from its swap device, or its checksum is wrong
    /// (EIO). It stays so until it is overwritten as a whole page, truncated or punched; all other
    /// pages are unharmed.
    #[error("page {index} could not be read back from swap")]
    Io {
        /// Index of the page in the object.
        index: u64,
    },
    /// The swap device of an entry is gone while the entry is still there (EINVAL).
    #[error("the swap device of {entry:?} is gone")]
    DeviceGone {
        /// The entry.
        entry: SwapEntry,
    },
    /// The offset or the end lies beyond 2^63 - 1 (EFBIG).
    #[error("the range ends beyond the largest offset")]
    TooLarge,
}

/// Why tiers are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetTiersError {
    /// The list does not fit the devices (EINVAL).
    #[error(transparent)]
    Tiers(#[from] TiersError),
    /// A device is being taken out of use (EBUSY).
    #[error("a device is being taken out of use")]
    Busy,
}

/// Why a limit of a space was not changed. The old one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The limit is below what the space needs, or below the content that it has.
    #[error("too small: give at least {least} bytes")]
    TooSmall {
        /// The least limit, in bytes.
        least: u64,
    },
    /// The space has no addresses for so much.
    #[error("too large: give at most {most} bytes")]
    TooLarge {
        /// The highest limit, in bytes.
        most: u64,
    },
}

/// Why a space could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The limit is too small to work with.
    #[error("a memory limit of {given} bytes is too small: give at least {least} bytes")]
    LimitTooSmall {
        /// The limit given, in bytes.
        given: u64,
        /// The least limit, in bytes.
        least: u64,
    },
    /// The system has no addresses left, or starts no thread.
    #[error(
        "{doing}: {error}. Free some memory or addresses (RLIMIT_AS, vm.overcommit_memory) and try again"
    )]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// The devices cannot be those of one space.
    #[error(
        "a space has at most one compressed store and 32 devices, and each other device is written to \
         something"
    )]
    Devices,
    /// The swap file could not be made.
    #[error(transparent)]
    SwapFile(#[from] folioswap_devices::create::CreateError),
}

//! What can go wrong, and what to do about it.

use folioswap_slots::SwapEntry;

/// Why an operation on an object was not done, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShmemError {
    /// The content is as large as it may be, or memory and swap space are both full (ENOSPC). Nothing that was stored is lost: free or
    /// truncate something and try again.
    #[error("no space left: content, memory or swap space are at their limit")]
    NoSpace,
    /// A page of the range could not be read back from its swap device, or is not what was written (EIO). It stays so until it is
    /// overwritten as a whole page, truncated or punched; everything else is unharmed.
    #[error("page {index} could not be read back from swap")]
    Io {
        /// Of the page, in the object.
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

/// Why a space could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The limit is too small to work with.
    #[error("a memory limit of {given} bytes is too small: give at least {least} bytes")]
    LimitTooSmall {
        /// What was given, in bytes.
        given: u64,
        /// The least, in bytes.
        least: u64,
    },
    /// The system gives no addresses, or no thread.
    #[error(
        "{doing}: {error}. Free some memory or addresses (RLIMIT_AS, vm.overcommit_memory) and try again"
    )]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
    /// The devices cannot be those of one space.
    #[error(
        "a space has at most one compressed store and 32 devices, and each other device is written to something"
    )]
    Devices,
    /// No swap file can be made.
    #[error(transparent)]
    SwapFile(#[from] folioswap_devices::create::CreateError),
}

//! The codes of errors.

use folioswap::{Error, ShmemError};

/// The result of a function: 0, or why the call was refused. A refused call has changed nothing
/// (folioswap_region_read and folioswap_region_write say how much they did). Later versions may add
/// codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    non_camel_case_types,
    clippy::upper_case_acronyms,
    missing_docs,
    reason = "C's names; the text says it"
)]
pub enum FolioswapCode {
    /// The call succeeded.
    FOLIOSWAP_OK = 0,
    /// An argument is a null pointer, is not UTF-8, or is not a size, device, priority, range or
    /// option.
    FOLIOSWAP_EINVAL = -1,
    /// The limit is below the smallest one, FOLIOSWAP_LEAST_LIMIT.
    FOLIOSWAP_ELIMIT = -2,
    /// The process has no memory, address space, mapping, descriptor or thread left, or the size is
    /// larger than any can be.
    FOLIOSWAP_ENOMEM = -3,
    /// The process may not use userfaultfd.
    FOLIOSWAP_EPERM = -4,
    /// The kernel is too old.
    FOLIOSWAP_ENOSYS = -5,
    /// The swap file cannot be made.
    FOLIOSWAP_EFILE = -6,
    /// The swap is closed.
    FOLIOSWAP_ECLOSED = -7,
    /// This process is a fork of the one that made the swap.
    FOLIOSWAP_EFORKED = -8,
    /// The process runs under `folioswap run`.
    FOLIOSWAP_EMANAGED = -9,
    /// Another system call failed. After folioswap_region_read and folioswap_region_write errno
    /// says why.
    FOLIOSWAP_ESYSTEM = -10,
    /// The library has a bug; please report the message.
    FOLIOSWAP_EBUG = -11,
    /// The contents are as large as they may be, or memory and swap are both full. No stored
    /// content is lost.
    FOLIOSWAP_ENOSPC = -12,
    /// A page cannot be read back from swap; the message names it. The page stays lost until it is
    /// overwritten as a whole, truncated or punched.
    FOLIOSWAP_EIO = -13,
    /// A range ends beyond the largest offset, 2^63 - 1.
    FOLIOSWAP_EFBIG = -14,
}

impl FolioswapCode {
    pub(crate) fn of_shmem(error: ShmemError) -> Self {
        match error {
            ShmemError::NoSpace => Self::FOLIOSWAP_ENOSPC,
            ShmemError::Io { .. } => Self::FOLIOSWAP_EIO,
            ShmemError::TooLarge => Self::FOLIOSWAP_EFBIG,
            ShmemError::Forked => Self::FOLIOSWAP_EFORKED,
            _ => Self::FOLIOSWAP_EINVAL,
        }
    }

    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::LimitTooSmall { .. } => Self::FOLIOSWAP_ELIMIT,
            Error::TooLarge { .. } | Error::PinTooLarge { .. } => Self::FOLIOSWAP_ENOMEM,
            Error::NoUserfault(_) => Self::FOLIOSWAP_EPERM,
            Error::OldKernel(_) | Error::PageSize(_) => Self::FOLIOSWAP_ENOSYS,
            Error::File(_) | Error::NotADirectory(_) => Self::FOLIOSWAP_EFILE,
            Error::Closed => Self::FOLIOSWAP_ECLOSED,
            Error::Forked => Self::FOLIOSWAP_EFORKED,
            Error::UnderRun => Self::FOLIOSWAP_EMANAGED,
            // ENOMEM, EAGAIN (threads), ENFILE, EMFILE: a resource of the process has run out.
            Error::System { errno, .. } if matches!(errno.raw_os_error(), 12 | 11 | 23 | 24) => {
                Self::FOLIOSWAP_ENOMEM
            }
            Error::System { .. } | Error::Transfer { .. } => Self::FOLIOSWAP_ESYSTEM,
            _ => Self::FOLIOSWAP_EINVAL,
        }
    }
}

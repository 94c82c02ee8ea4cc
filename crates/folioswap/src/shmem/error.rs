//! Errors of objects. Each message names the next step.

/// Why an operation on a [`crate::ShmemObject`] failed or ended early. Each message names the next
/// step.
///
/// ```
/// use folioswap::{Device, ShmemError, ShmemSpace};
///
/// let space = ShmemSpace::builder().limit("8M").size("1M").device(Device::zram()).build()?;
/// let object = space.object()?;
/// assert_eq!(object.write(2 << 20, b"beyond the end, which is no fault"), Ok(33));
/// assert_eq!(object.allocate(0, 4 << 20), Err(ShmemError::NoSpace));
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShmemError {
    /// The content is as large as it may be, or memory and swap are both full (ENOSPC). No stored
    /// content is lost.
    #[error(
        "no space left: content, or memory and swap, are at their limit; free or truncate something, or make the space larger"
    )]
    NoSpace,
    /// A page could not be read back from swap, or its bytes do not match their checksum (EIO). The
    /// page stays lost until it is overwritten as a whole, truncated or punched; all else is
    /// unharmed.
    #[error(
        "page {index} of the object cannot be read back from swap: overwrite it as a whole, or punch it; all else is unharmed"
    )]
    Io {
        /// The page's index: its offset divided by 4096.
        index: u64,
    },
    /// The offset or the end is beyond 2^63 - 1 (EFBIG).
    #[error("the range ends beyond the largest offset, 2^63 - 1")]
    TooLarge,
    /// The calling thread is inside [`crate::ShmemObject::read_with`], to which bytes are lent. A
    /// writer would wait for its own thread forever.
    #[error(
        "bytes of an object are lent to this thread: copy them, and change objects after `read_with` has returned"
    )]
    Lent,
    /// The calling process is a fork of the one that made the space.
    #[error("this process is a fork of the one that made the space: make one of its own")]
    Forked,
}

impl ShmemError {
    pub(super) fn of(error: folioswap_shmem::ShmemError) -> Self {
        match error {
            folioswap_shmem::ShmemError::NoSpace => ShmemError::NoSpace,
            folioswap_shmem::ShmemError::Io { index } => ShmemError::Io { index },
            folioswap_shmem::ShmemError::TooLarge => ShmemError::TooLarge,
            // A space of this library has no call that takes a device off.
            folioswap_shmem::ShmemError::DeviceGone { .. } => ShmemError::NoSpace,
        }
    }
}

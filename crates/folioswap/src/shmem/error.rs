//! What can go wrong with an object, and what to do about it.

/// Why an operation on a [`crate::ShmemObject`] was not done, or not to its end. Each message says what to do.
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
    /// The content is as large as it may be, or memory and swap are both full (ENOSPC). Nothing that was stored is lost.
    #[error(
        "no space left: content, or memory and swap, are at their limit; free or truncate something, or make the space larger"
    )]
    NoSpace,
    /// A page could not be read back from swap, or is not what was written (EIO). It stays so until it is overwritten as a whole page,
    /// truncated or punched; everything else is unharmed.
    #[error(
        "page {index} of the object cannot be read back from swap: overwrite it as a whole, or punch it; all else is unharmed"
    )]
    Io {
        /// The page: its offset divided by 4096.
        index: u64,
    },
    /// The offset or the end lies beyond 2^63 - 1 (EFBIG).
    #[error("the range ends beyond the largest offset, 2^63 - 1")]
    TooLarge,
    /// The calling thread is inside of [`crate::ShmemObject::read_with`], where bytes are lent to it: a writer would wait for it for ever.
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
            // Nothing takes a device away here.
            folioswap_shmem::ShmemError::DeviceGone { .. } => ShmemError::NoSpace,
        }
    }
}

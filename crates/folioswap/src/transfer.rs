//! Reading a descriptor into a region, and writing a region to one, where the kernel may not wait
//! for memory that is swapped out.

use crate::{Error, Region};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::ops::{Range, RangeBounds};

/// The bytes of one system call. One piece is a small part of the least limit, so that others can
/// pin too, and long enough that the system call is a small part of its time.
const PIECE_BYTES: usize = 1 << 20;
/// The length to which a piece is halved at most where others have pinned much.
const LEAST_PIECE_BYTES: usize = folioswap_devices::PAGE_SIZE;

/// The direction of a transfer.
#[derive(Clone, Copy)]
enum Direction {
    /// From the descriptor into the region.
    Read,
    /// From the region to the descriptor.
    Write,
}

impl Direction {
    fn doing(self) -> &'static str {
        match self {
            Direction::Read => "reading into a region",
            Direction::Write => "writing from a region",
        }
    }
}

impl Region {
    /// Reads from a descriptor into the range, until the range is full or the descriptor is at its
    /// end, and returns the number of bytes read. It works for every process and every
    /// [`crate::FaultMode`]: where the kernel cannot wait for memory that is swapped out
    /// ([`Region::serves_system_calls`] is false), pieces of at most 1 MiB are pinned in turn, so
    /// the range may be larger than the limit. Short reads are continued, and interrupted ones
    /// (EINTR) repeated. Cost: one read(2) for each MiB or short read, besides the way back of what
    /// was swapped out.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] and [`Error::Forked`], before anything is read;
    /// [`Error::Transfer`] where read(2) failed, with the bytes that were read before;
    /// [`Error::PinTooLarge`] where others have pinned all that can be, when nothing was read yet.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("16M").build()?;
    /// let mut region = swap.region("1M")?;
    /// let program = std::fs::File::open("/proc/self/exe").expect("our own program");
    /// assert_eq!(region.read_from(program, 100..4196)?, 4096);
    /// assert_eq!(&region.as_slice()[101..104], b"ELF");
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn read_from(&mut self, file: impl AsFd, range: impl RangeBounds<usize>) -> Result<usize, Error> {
        // SAFETY: borrowed exclusively, so no slice of the region exists.
        unsafe { self.read_from_shared(file, range) }
    }

    /// Is [`Region::read_from`] for a region that threads share by raw pointers.
    ///
    /// # Errors
    /// As [`Region::read_from`].
    ///
    /// # Safety
    /// No slice of the range is alive during the call. (Raw accesses by other threads at that time
    /// see old or new bytes, as with read(2).)
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("16M").build()?;
    /// let region = swap.region("1M")?;
    /// let program = std::fs::File::open("/proc/self/exe").expect("our own program");
    /// // SAFETY: nobody has a slice of the region.
    /// assert_eq!(unsafe { region.read_from_shared(program, ..4) }?, 4);
    /// assert_eq!(&region.as_slice()[1..4], b"ELF");
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub unsafe fn read_from_shared(
        &self,
        file: impl AsFd,
        range: impl RangeBounds<usize>,
    ) -> Result<usize, Error> {
        self.transfer_all(Direction::Read, file, self.bytes(range)?)
    }

    /// Writes the range to a descriptor, and returns its length. It works for every process and
    /// every [`crate::FaultMode`], as [`Region::read_from`] does. Short writes are continued, and
    /// interrupted ones repeated.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] and [`Error::Forked`], before anything is written;
    /// [`Error::Transfer`] where write(2) failed, with the bytes that were written before;
    /// [`Error::PinTooLarge`] where others have pinned all that can be, when nothing was written
    /// yet.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("16M").build()?;
    /// let mut region = swap.region("48M")?;
    /// region.as_mut_slice().fill(1);
    /// let null = std::fs::File::create("/dev/null").expect("it is always there");
    /// assert_eq!(region.write_to(null, ..)?, 48 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn write_to(&self, file: impl AsFd, range: impl RangeBounds<usize>) -> Result<usize, Error> {
        self.transfer_all(Direction::Write, file, self.bytes(range)?)
    }

    /// Makes one read(2) into the beginning of the range, of at most 1 MiB, and returns the number
    /// of bytes; 0: the descriptor is at its end, or the range is empty. For callers that have to
    /// look at something between two system calls; others call [`Region::read_from`].
    ///
    /// # Errors
    /// As [`Region::read_from`]; [`Error::Transfer`] also for EINTR, with 0 bytes.
    ///
    /// # Safety
    /// As [`Region::read_from_shared`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("16M").build()?;
    /// let region = swap.region("4M")?;
    /// let zero = std::fs::File::open("/dev/zero").expect("it is always there");
    /// // SAFETY: nobody has a slice of the region.
    /// assert_eq!(unsafe { region.read_some_from(zero, ..) }?, 1 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub unsafe fn read_some_from(
        &self,
        file: impl AsFd,
        range: impl RangeBounds<usize>,
    ) -> Result<usize, Error> {
        self.transfer_some(Direction::Read, &file, self.bytes(range)?)
    }

    /// Makes one write(2) of the beginning of the range, of at most 1 MiB, and returns the number
    /// of bytes. For callers that have to look at something between two system calls; others call
    /// [`Region::write_to`].
    ///
    /// # Errors
    /// As [`Region::write_to`]; [`Error::Transfer`] also for EINTR, with 0 bytes.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("16M").build()?;
    /// let region = swap.region("4M")?;
    /// let null = std::fs::File::create("/dev/null").expect("it is always there");
    /// assert_eq!(region.write_some_to(null, 10..)?, 1 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn write_some_to(&self, file: impl AsFd, range: impl RangeBounds<usize>) -> Result<usize, Error> {
        self.transfer_some(Direction::Write, &file, self.bytes(range)?)
    }

    /// Transfers the range, piece by piece.
    fn transfer_all(
        &self,
        direction: Direction,
        file: impl AsFd,
        range: Range<usize>,
    ) -> Result<usize, Error> {
        let mut at = range.start;
        while at < range.end {
            let done = at - range.start;
            match self.transfer_some(direction, &file, at..range.end) {
                Ok(0) => break,
                Ok(bytes) => at += bytes,
                Err(Error::Transfer { errno: Errno::INTR, .. }) => {}
                Err(Error::Transfer { doing, errno, .. }) => {
                    return Err(Error::Transfer { doing, errno, done });
                }
                // Bytes have been transferred, so the error has to say how many.
                Err(Error::PinTooLarge { .. }) if done > 0 => {
                    return Err(Error::Transfer { doing: direction.doing(), errno: Errno::NOMEM, done });
                }
                Err(other) => return Err(other),
            }
        }
        Ok(at - range.start)
    }

    /// Makes one system call for the beginning of the range.
    fn transfer_some(
        &self,
        direction: Direction,
        file: &impl AsFd,
        range: Range<usize>,
    ) -> Result<usize, Error> {
        let mut bytes = range.len().min(PIECE_BYTES);
        if bytes == 0 {
            return Ok(0);
        }
        let pinned = loop {
            if self.serves_system_calls() {
                break None;
            }
            match self.pin(range.start..range.start + bytes) {
                Ok(pin) => break Some(pin),
                Err(Error::PinTooLarge { .. }) if bytes > LEAST_PIECE_BYTES => bytes /= 2,
                Err(other) => return Err(other),
            }
        };
        let descriptor = file.as_fd().as_raw_fd();
        // SAFETY: within the region, which is mapped as long as it is borrowed. The kernel writes
        // into it only where the caller has vouched that nobody has a slice of the range.
        let result = unsafe {
            let first = self.base().as_ptr().add(range.start).cast::<libc::c_void>();
            match direction {
                Direction::Read => libc::read(descriptor, first, bytes),
                Direction::Write => libc::write(descriptor, first, bytes),
            }
        };
        // The error is asked for before the pin is dropped, which makes system calls too.
        let result = match usize::try_from(result) {
            // A write of nothing, without an error, would be repeated for ever.
            Ok(0) if matches!(direction, Direction::Write) => Err(Errno::IO),
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        };
        drop(pinned);
        result.map_err(|errno| Error::Transfer { doing: direction.doing(), errno, done: 0 })
    }
}

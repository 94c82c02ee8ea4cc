//! The file device: page-sized slots in a file, a block device or plain RAM that the caller opened
//! (`O_DIRECT` where there is a medium).

use core::fmt;
use core::num::NonZeroU32;

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, IoSlice, pread, pwritev};
use rustix::ioctl;

use crate::device::{Characteristics, Device, Orders, Synchrony};
use crate::location::FileSlot;
use crate::page::PAGE_SIZE;

/// The medium of a [`FileDevice`], which decides how it discards and how much a read costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A regular file. Discards punch holes.
    File,
    /// A block device. Discards are `BLKDISCARD`.
    Block,
    /// A file in memory (memfd). Discards punch holes, and reading is copying.
    Memory,
}

impl Medium {
    /// Nanoseconds to read one page, as an order of magnitude.
    pub const fn read_ns(self) -> u32 {
        match self {
            Medium::Memory => MEMORY_READ_NS,
            Medium::File | Medium::Block => DISK_READ_NS,
        }
    }

    /// Pages in one operation beyond which a larger one hardly gains throughput.
    pub const fn batch_pages(self) -> u32 {
        match self {
            Medium::Memory => MEMORY_BATCH_PAGES,
            Medium::File | Medium::Block => DISK_BATCH_PAGES,
        }
    }
}

/// Nominal costs, compared when choosing between kinds of devices: the orders of magnitude of a
/// solid-state disk and of a copy.
const DISK_READ_NS: u32 = 100_000;
const MEMORY_READ_NS: u32 = 1_000;
/// A disk's throughput hardly grows from 512 KiB on, with one write after the other
/// (`docs/results.md`, *Files beside fio*).
const DISK_BATCH_PAGES: u32 = 128;
const MEMORY_BATCH_PAGES: u32 = 16;
const PAGE_BYTES: NonZeroU32 = NonZeroU32::new(PAGE_SIZE as u32).unwrap();

/// Most ranges of memory from which one call writes pages.
pub const PARTS_MAX: usize = 8;

/// `BLKDISCARD`: `_IO(0x12, 119)` of `linux/fs.h`.
const BLKDISCARD: ioctl::Opcode = ioctl::opcode::none(0x12, 119);

/// Page-sized slots of a file.
///
/// The device holds only a descriptor, which the caller keeps open, and the properties of its
/// medium. Each call makes the system calls that it names, in the calling thread. Several threads
/// may use one device, on different slots.
#[derive(Debug, Clone, Copy)]
pub struct FileDevice<'fd> {
    fd: BorrowedFd<'fd>,
    medium: Medium,
    orders: Orders,
    discard_bytes: Option<NonZeroU32>,
}

/// The operation that failed on a file, and its first failed slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    /// The buffer is empty, not aligned to a page, or not whole pages. Nothing was done.
    BadBuffer {
        /// The first slot of the request.
        slot: FileSlot,
    },
    /// Slot numbers beyond [`FileSlot::BITS`]. Nothing was done.
    SlotRange {
        /// The first slot of the request.
        slot: FileSlot,
        /// Number of slots.
        slots: u64,
    },
    /// The device does not take so many pages in one write (see its [`Orders`]). Nothing was done;
    /// the caller writes them separately.
    OrderNotTaken {
        /// The first slot of the request.
        slot: FileSlot,
        /// Pages of the run.
        pages: usize,
    },
    /// `pwritev` failed at this slot. Earlier slots of the run are written; this and later ones are
    /// undefined.
    Write {
        /// The slot that failed.
        slot: FileSlot,
        /// The reason (`NOSPC`: the file system is full).
        errno: Errno,
    },
    /// `pwritev` wrote less than one page and gave no reason.
    ShortWrite {
        /// The slot that failed.
        slot: FileSlot,
    },
    /// `pread` failed at this slot. Earlier slots of the run were read.
    Read {
        /// The slot that failed.
        slot: FileSlot,
        /// The reason (`IO`: the medium).
        errno: Errno,
    },
    /// The file ends in or before this slot.
    EndOfFile {
        /// The first slot that the file does not hold completely.
        slot: FileSlot,
    },
    /// The discard failed, and the state of the slots is unknown (`OPNOTSUPP`: the file system has
    /// no holes).
    Punch {
        /// The first slot of the run.
        slot: FileSlot,
        /// The reason.
        errno: Errno,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadBuffer { slot } => {
                write!(f, "slot {}: the buffer is not one or more aligned pages", slot.raw())
            }
            Self::SlotRange { slot, slots } => {
                write!(f, "{slots} slots from {} are out of range", slot.raw())
            }
            Self::OrderNotTaken { slot, pages } => {
                write!(f, "slot {}: the device does not take {pages} pages at once", slot.raw())
            }
            Self::Write { slot, errno } => write!(f, "writing slot {}: {errno}", slot.raw()),
            Self::ShortWrite { slot } => {
                write!(f, "writing slot {}: less than a page was written", slot.raw())
            }
            Self::Read { slot, errno } => write!(f, "reading slot {}: {errno}", slot.raw()),
            Self::EndOfFile { slot } => write!(f, "reading slot {}: the file ends before it", slot.raw()),
            Self::Punch { slot, errno } => write!(f, "freeing slots from {}: {errno}", slot.raw()),
        }
    }
}

impl core::error::Error for FileError {}

impl<'fd> FileDevice<'fd> {
    /// A device on an open regular file, readable and writable, that takes every order.
    pub const fn new(fd: BorrowedFd<'fd>) -> Self {
        Self { fd, medium: Medium::File, orders: Orders::ALL, discard_bytes: Some(PAGE_BYTES) }
    }

    /// The same device on another medium.
    #[must_use]
    pub const fn on(self, medium: Medium) -> Self {
        Self { medium, ..self }
    }

    /// The same device, taking only these orders.
    #[must_use]
    pub const fn taking(self, orders: Orders) -> Self {
        Self { orders, ..self }
    }

    /// The same device, on a medium that discards in units of this many bytes, or (`None`) not at
    /// all.
    #[must_use]
    pub const fn discarding(self, discard_bytes: Option<NonZeroU32>) -> Self {
        Self { discard_bytes, ..self }
    }

    /// Whether the device takes a run of so many pages in one write.
    pub fn takes_run(&self, pages: usize) -> bool {
        self.orders.take_run(pages)
    }

    pub(crate) fn raw_descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Writes whole pages to consecutive slots: one `pwritev`, more after a short one. The file
    /// grows as needed.
    ///
    /// `pages` is aligned to 4096 bytes and a multiple of them long, as `O_DIRECT` demands.
    ///
    /// # Errors
    ///
    /// [`FileError::BadBuffer`], [`FileError::SlotRange`], [`FileError::OrderNotTaken`],
    /// [`FileError::Write`], [`FileError::ShortWrite`].
    pub fn write(&self, slot: FileSlot, pages: &[u8]) -> Result<(), FileError> {
        self.write_parts(slot, &[pages])
    }

    /// Writes, as [`FileDevice::write`] does, pages from several ranges of memory in one `pwritev`.
    /// There are at most [`PARTS_MAX`] parts, each of them whole aligned pages.
    ///
    /// # Errors
    ///
    /// Those of [`FileDevice::write`]; [`FileError::BadBuffer`] also for too many parts.
    pub fn write_parts(&self, slot: FileSlot, parts: &[&[u8]]) -> Result<(), FileError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if parts.is_empty() || parts.len() > PARTS_MAX {
            return Err(FileError::BadBuffer { slot });
        }
        for part in parts {
            check_run(slot, part.as_ptr(), part.len())?;
        }
        check_run(slot, parts[0].as_ptr(), bytes)?;
        let count = bytes / PAGE_SIZE;
        if !self.orders.take_run(count) {
            return Err(FileError::OrderNotTaken { slot, pages: count });
        }
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        let mut done = 0;
        while done < bytes {
            let at = slot.offset_bytes() + done as u64;
            let left = slices_from(parts, done, &mut slices);
            match pwritev(self.fd, left, at) {
                Ok(0) => return Err(FileError::ShortWrite { slot: slot_at(slot, done) }),
                // A short write may end inside a page. The next attempt starts at that page, so
                // that O_DIRECT stays aligned. A write that ends in its first page would be
                // repeated for ever, so it is an error.
                Ok(n) if n < PAGE_SIZE && done + n < bytes => {
                    return Err(FileError::ShortWrite { slot: slot_at(slot, done) });
                }
                Ok(n) => done += whole_pages(n.min(bytes - done)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FileError::Write { slot: slot_at(slot, done), errno }),
            }
        }
        Ok(())
    }

    /// Reads whole pages from consecutive slots: one `pread`, more after a short one.
    ///
    /// `buf` is aligned to 4096 bytes and a multiple of them long. A slot that was punched or
    /// skipped reads as zeroes; the caller detects it by its checksum.
    ///
    /// # Errors
    ///
    /// [`FileError::BadBuffer`], [`FileError::SlotRange`], [`FileError::Read`],
    /// [`FileError::EndOfFile`].
    pub fn read(&self, slot: FileSlot, buf: &mut [u8]) -> Result<(), FileError> {
        check_run(slot, buf.as_ptr(), buf.len())?;
        let mut done = 0;
        while done < buf.len() {
            let at = slot.offset_bytes() + done as u64;
            match pread(self.fd, &mut buf[done..], at) {
                Ok(n) if n < PAGE_SIZE => return Err(FileError::EndOfFile { slot: slot_at(slot, done) }),
                Ok(n) => done += whole_pages(n.min(buf.len() - done)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FileError::Read { slot: slot_at(slot, done), errno }),
            }
        }
        Ok(())
    }

    /// Gives the space of `slots` consecutive slots back to the medium. In a file it punches holes,
    /// which read as zeroes and keep the file's length; on a block device it is `BLKDISCARD`, after
    /// which the slots read as arbitrary bytes. A call costs about as much as a write (84 µs for
    /// one slot of a file), so callers discard in bulk.
    ///
    /// # Errors
    ///
    /// [`FileError::SlotRange`], [`FileError::Punch`] (`OPNOTSUPP`: the medium cannot discard; only
    /// space is lost).
    pub fn discard(&self, slot: FileSlot, slots: u64) -> Result<(), FileError> {
        let end = slot.raw().checked_add(slots).filter(|&end| slots > 0 && end <= 1 << FileSlot::BITS);
        if end.is_none() {
            return Err(FileError::SlotRange { slot, slots });
        }
        let (start, bytes) = (slot.offset_bytes(), slots * PAGE_SIZE as u64);
        loop {
            match self.discard_range(start, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FileError::Punch { slot, errno }),
            }
        }
    }
}

impl FileDevice<'_> {
    fn discard_range(&self, start: u64, bytes: u64) -> Result<(), Errno> {
        match self.medium {
            _ if self.discard_bytes.is_none() => Err(Errno::OPNOTSUPP),
            Medium::File | Medium::Memory => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(self.fd, flags, start, bytes)
            }
            Medium::Block => {
                let mut range = [start, bytes];
                // SAFETY: BLKDISCARD reads two 64-bit words, first byte and length, and writes
                // nothing here.
                unsafe { ioctl::ioctl(self.fd, ioctl::Updater::<BLKDISCARD, [u64; 2]>::new(&mut range)) }
            }
        }
    }
}

impl Device for FileDevice<'_> {
    fn characteristics(&self) -> Characteristics {
        let synchrony = match self.medium {
            Medium::Memory => Synchrony::Synchronous,
            Medium::File | Medium::Block => Synchrony::Asynchronous,
        };
        let (read_ns, batch_pages) = (self.medium.read_ns(), self.medium.batch_pages());
        let (orders, discard_bytes) = (self.orders, self.discard_bytes);
        Characteristics { synchrony, orders, discard_bytes, read_ns, batch_pages }
    }

    fn write(&self, slot: FileSlot, pages: &[u8]) -> Result<(), FileError> {
        FileDevice::write(self, slot, pages)
    }

    fn read(&self, slot: FileSlot, pages: &mut [u8]) -> Result<(), FileError> {
        FileDevice::read(self, slot, pages)
    }

    fn discard(&self, slot: FileSlot, slots: u64) -> Result<(), FileError> {
        FileDevice::discard(self, slot, slots)
    }
}

fn check_run(slot: FileSlot, start: *const u8, bytes: usize) -> Result<(), FileError> {
    if bytes == 0 || !bytes.is_multiple_of(PAGE_SIZE) || !start.addr().is_multiple_of(PAGE_SIZE) {
        return Err(FileError::BadBuffer { slot });
    }
    let slots = (bytes / PAGE_SIZE) as u64;
    if slot.raw() + slots > 1 << FileSlot::BITS {
        return Err(FileError::SlotRange { slot, slots });
    }
    Ok(())
}

/// The slot that a run from `slot` reaches after `done_bytes`. It is in range, because
/// [`check_run`] has seen the whole run.
fn slot_at(slot: FileSlot, done_bytes: usize) -> FileSlot {
    FileSlot::new(slot.raw() + (done_bytes / PAGE_SIZE) as u64).unwrap_or(slot)
}

/// The rest of `parts` after their first `done` bytes.
fn slices_from<'a, 's>(
    parts: &[&'a [u8]],
    mut done: usize,
    slices: &'s mut [IoSlice<'a>; PARTS_MAX],
) -> &'s [IoSlice<'a>] {
    let mut count = 0;
    for &part in parts {
        if done < part.len() {
            slices[count] = IoSlice::new(&part[done..]);
            count += 1;
        }
        done = done.saturating_sub(part.len());
    }
    &slices[..count]
}

fn whole_pages(bytes: usize) -> usize {
    bytes - bytes % PAGE_SIZE
}

#[cfg(test)]
mod tests;

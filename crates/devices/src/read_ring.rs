//! Asynchronous reads of the file device: a small io_uring.
//!
//! Source: io_uring(7), io_uring_setup(2), io_uring_enter(2).

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp, io_uring_cqe,
    io_uring_enter, io_uring_params, io_uring_setup, io_uring_sqe, io_uring_user_data,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::file::FileDevice;
use crate::location::FileSlot;
use crate::page::PAGE_SIZE;

/// A read that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The tag that [`ReadRing::begin`] was given.
    pub tag: u64,
    /// Bytes read, not necessarily whole pages; or the reason why none were.
    pub read: Result<usize, Errno>,
}

/// A mapping of the ring, unmapped on drop.
#[derive(Debug)]
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    fn new(ring: BorrowedFd<'_>, bytes: usize, offset: u64) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the mapping is new, at an address of the kernel's choice.
        let start = unsafe {
            mmap(core::ptr::null_mut(), bytes, access, MapFlags::SHARED | MapFlags::POPULATE, ring, offset)
        }?;
        let mapped = Mapped { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, bytes };
        // SAFETY: a forked child has no use for this mapping.
        unsafe { madvise(start, bytes, Advice::LinuxDontFork) }?;
        Ok(mapped)
    }

    /// The address `offset` bytes from the start.
    fn at<T>(&self, offset: u32) -> *mut T {
        debug_assert!(offset as usize + size_of::<T>() <= self.bytes);
        self.start.as_ptr().wrapping_add(offset as usize).cast()
    }

    /// A counter that the kernel shares with this process.
    fn counter(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel says that a 32-bit counter is there. The mapping lives as long as
        // `self`, and both sides use the counter atomically.
        unsafe { AtomicU32::from_ptr(self.at(offset)) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `self` owns the mapping, and nothing else refers to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// An io_uring for reads, used by one thread. It needs no lock and no memory but the kernel's.
///
/// A forked child has neither the mappings nor the reads of this ring, and makes one of its own.
#[derive(Debug)]
pub struct ReadRing {
    ring: OwnedFd,
    queues: Mapped,
    entries: Mapped,
    parameters: io_uring_params,
    under_way: u32,
}

impl ReadRing {
    /// Makes a ring for up to `reads` reads at a time (a power of two).
    ///
    /// # Errors
    /// PERM, NOSYS: a container's filter or the administrator does not allow io_uring. INVAL: Linux
    /// before 5.4.
    pub fn new(reads: u32) -> Result<Self, Errno> {
        let mut parameters = io_uring_params::default();
        // SAFETY: the kernel reads and writes nothing before `begin`.
        let ring = unsafe { io_uring_setup(reads, &mut parameters) }?;
        if !parameters.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(Errno::INVAL);
        }
        let submission = parameters.sq_off.array as usize + parameters.sq_entries as usize * size_of::<u32>();
        let completion =
            parameters.cq_off.cqes as usize + parameters.cq_entries as usize * size_of::<io_uring_cqe>();
        let queues = Mapped::new(ring.as_fd(), submission.max(completion), IORING_OFF_SQ_RING)?;
        let bytes = parameters.sq_entries as usize * size_of::<io_uring_sqe>();
        let entries = Mapped::new(ring.as_fd(), bytes, IORING_OFF_SQES)?;
        Ok(ReadRing { ring, queues, entries, parameters, under_way: 0 })
    }

    /// Reads that have begun and that [`ReadRing::ended`] has not returned yet.
    pub const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Begins to read `bytes` from `slot` of `device` onwards, and returns before they are there.
    /// Cost: one system call, about 5 µs with O_DIRECT.
    ///
    /// # Safety
    /// `pages` stays valid, and nothing else uses these bytes, until [`ReadRing::ended`] has
    /// returned `tag`.
    ///
    /// # Errors
    /// AGAIN: as many reads as the ring can hold are under way. Other errors are those of
    /// io_uring_enter(2). Nothing was begun.
    pub unsafe fn begin(
        &mut self,
        device: FileDevice<'_>,
        slot: FileSlot,
        pages: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Result<(), Errno> {
        debug_assert!(bytes.is_multiple_of(PAGE_SIZE) && pages.as_ptr().addr().is_multiple_of(PAGE_SIZE));
        // SAFETY: the caller guarantees it.
        unsafe { self.submit(device.raw_descriptor(), slot.offset_bytes(), pages, bytes, tag) }
    }

    /// Begins to receive up to `bytes` from a socket, one message where the socket has messages. In
    /// all else it is [`ReadRing::begin`].
    ///
    /// # Safety
    /// As [`ReadRing::begin`]; the socket stays open until then too.
    ///
    /// # Errors
    /// As [`ReadRing::begin`].
    pub unsafe fn begin_receive(
        &mut self,
        socket: BorrowedFd<'_>,
        pages: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Result<(), Errno> {
        // SAFETY: the caller guarantees it. A socket is read at offset 0.
        unsafe { self.submit(socket.as_raw_fd(), 0, pages, bytes, tag) }
    }

    /// # Safety
    /// As [`ReadRing::begin`].
    unsafe fn submit(
        &mut self,
        descriptor: i32,
        offset: u64,
        pages: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Result<(), Errno> {
        if self.under_way == self.parameters.sq_entries {
            return Err(Errno::AGAIN);
        }
        let offsets = &self.parameters.sq_off;
        let tail = self.queues.counter(offsets.tail);
        let position = tail.load(Relaxed);
        let index = position & self.queues.counter(offsets.ring_mask).load(Relaxed);
        let mut entry = io_uring_sqe { opcode: IoringOp::Read, fd: descriptor, ..Default::default() };
        entry.off_or_addr2.off = offset;
        entry.addr_or_splice_off_in.addr.ptr = pages.as_ptr().cast();
        entry.len.len = bytes as u32;
        entry.user_data = io_uring_user_data { u64_: tag };
        // SAFETY: the index is below the number of entries, which both arrays have. The kernel does
        // not look at this entry before the tail says so.
        unsafe {
            self.entries.at::<io_uring_sqe>(index * size_of::<io_uring_sqe>() as u32).write(entry);
            self.queues.at::<u32>(offsets.array + index * size_of::<u32>() as u32).write(index);
        }
        tail.store(position.wrapping_add(1), Release);
        loop {
            // SAFETY: the entry above is a read into the caller's pages.
            match unsafe { io_uring_enter(self.ring.as_fd(), 1, 0, IoringEnterFlags::empty()) } {
                Ok(1) => {
                    self.under_way += 1;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                refused => {
                    // The kernel has not taken the entry.
                    tail.store(position, Release);
                    return Err(refused.err().unwrap_or(Errno::AGAIN));
                }
            }
        }
    }

    /// A read that has ended and was not returned yet. Makes no system call.
    pub fn ended(&mut self) -> Option<Ended> {
        let offsets = &self.parameters.cq_off;
        let head = self.queues.counter(offsets.head);
        let position = head.load(Relaxed);
        if position == self.queues.counter(offsets.tail).load(Acquire) {
            return None;
        }
        let index = position & self.queues.counter(offsets.ring_mask).load(Relaxed);
        // SAFETY: the tail says that the kernel has written this entry. The kernel does not write
        // there again before the head says so.
        let (tag, result) = unsafe {
            let found =
                self.queues.at::<io_uring_cqe>(offsets.cqes + index * size_of::<io_uring_cqe>() as u32);
            ((&raw const (*found).user_data).cast::<u64>().read(), (&raw const (*found).res).read())
        };
        head.store(position.wrapping_add(1), Release);
        self.under_way -= 1;
        let read = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        Some(Ended { tag, read })
    }
}

impl AsFd for ReadRing {
    /// The descriptor is readable for poll(2) when a read has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

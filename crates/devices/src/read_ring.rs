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
    IoringEnterFlags, IoringOp, IoringRegisterOp, IoringRestrictionOp, IoringSetupFlags, io_uring_cqe,
    io_uring_enter, io_uring_params, io_uring_ptr, io_uring_register, io_uring_restriction, io_uring_setup,
    io_uring_sqe, io_uring_user_data,
};

use crate::file::FileDevice;
use crate::location::FileSlot;
use crate::page::PAGE_SIZE;

/// The most reads of one ring at a time: their entries fill one page.
pub const RING_READS_MAX: u32 = 64;

/// A read that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The tag that [`ReadRing::begin`] was given.
    pub tag: u64,
    /// Bytes read, not necessarily whole pages; or the reason why none were.
    pub read: Result<usize, Errno>,
}

/// The memory that a ring shares with the kernel: a page of counters and completions, and a page of
/// submission entries. All bytes may be zero.
///
/// It is the owner's, not a mapping of the ring: the kernel would choose where that lies, and might
/// choose a hole which the program maps over.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct RingMemory {
    queues: [u8; PAGE_SIZE],
    entries: [u8; PAGE_SIZE],
}

impl RingMemory {
    /// Memory for one ring, all zero.
    pub const fn new() -> Self {
        RingMemory { queues: [0; PAGE_SIZE], entries: [0; PAGE_SIZE] }
    }
}

impl Default for RingMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// An io_uring for reads, used by one thread. It needs no lock and no memory but its own.
///
/// The kernel lets it read and do nothing else, whoever writes to its memory: whoever can write
/// there could otherwise have the thread open files and connect with the thread's rights.
///
/// A forked child has a copy of the memory and none of the reads, and makes a ring of its own in
/// that copy.
#[derive(Debug)]
pub struct ReadRing {
    ring: OwnedFd,
    queues: NonNull<u8>,
    entries: NonNull<io_uring_sqe>,
    parameters: io_uring_params,
    under_way: u32,
}

/// What is behind a part of a ring's memory.
fn address_of(start: NonNull<u8>) -> io_uring_ptr {
    let mut address = io_uring_ptr::default();
    address.ptr = start.as_ptr().cast();
    address
}

impl ReadRing {
    /// Makes a ring for up to `reads` reads at a time (a power of two, at most [`RING_READS_MAX`])
    /// in this memory, which is written over. Cost: four system calls, some 15 µs.
    ///
    /// # Errors
    /// PERM, NOSYS: a container's filter or the administrator does not allow io_uring. INVAL: Linux
    /// before 6.6.
    pub fn new(reads: u32, memory: &'static mut RingMemory) -> Result<Self, Errno> {
        debug_assert!(reads.is_power_of_two() && reads <= RING_READS_MAX);
        *memory = RingMemory::new();
        let queues = NonNull::from(&mut memory.queues).cast::<u8>();
        let entries = NonNull::from(&mut memory.entries).cast::<u8>();
        let mut parameters = io_uring_params::default();
        parameters.flags =
            IoringSetupFlags::NO_MMAP | IoringSetupFlags::NO_SQARRAY | IoringSetupFlags::R_DISABLED;
        parameters.cq_off.user_addr = address_of(queues);
        parameters.sq_off.user_addr = address_of(entries);
        // SAFETY: the two pages are this ring's for ever. The kernel reads and writes nothing else
        // before `begin`.
        let ring = unsafe { io_uring_setup(reads, &mut parameters) }?;
        restrict(ring.as_fd())?;
        let completions = parameters.cq_entries as usize * size_of::<io_uring_cqe>();
        if parameters.cq_off.cqes as usize + completions > PAGE_SIZE || parameters.sq_entries > RING_READS_MAX
        {
            return Err(Errno::INVAL);
        }
        Ok(ReadRing { ring, queues, entries: entries.cast(), parameters, under_way: 0 })
    }

    /// The address `offset` bytes from the start of the queues.
    fn at<T>(&self, offset: u32) -> *mut T {
        debug_assert!(offset as usize + size_of::<T>() <= PAGE_SIZE);
        self.queues.as_ptr().wrapping_add(offset as usize).cast()
    }

    /// A counter that the kernel shares with this process.
    fn counter(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel says that a 32-bit counter is there. The memory lives for ever, and
        // both sides use the counter atomically.
        unsafe { AtomicU32::from_ptr(self.at(offset)) }
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
        let mut entry = io_uring_sqe { opcode: IoringOp::Read, fd: descriptor, ..Default::default() };
        entry.off_or_addr2.off = offset;
        entry.addr_or_splice_off_in.addr.ptr = pages.as_ptr().cast();
        entry.len.len = bytes as u32;
        entry.user_data = io_uring_user_data { u64_: tag };
        // SAFETY: the entry is a read into the caller's pages.
        unsafe { self.enter(entry) }
    }

    /// Hands an entry to the kernel.
    ///
    /// # Safety
    /// That of the operation which the entry describes.
    unsafe fn enter(&mut self, entry: io_uring_sqe) -> Result<(), Errno> {
        if self.under_way == self.parameters.sq_entries {
            return Err(Errno::AGAIN);
        }
        let tail = self.counter(self.parameters.sq_off.tail);
        let position = tail.load(Relaxed);
        let index = position & (self.parameters.sq_entries - 1);
        // SAFETY: the index is below the number of entries, a power of two. The kernel does not
        // look at this entry before the tail says so.
        unsafe { self.entries.add(index as usize).write(entry) };
        tail.store(position.wrapping_add(1), Release);
        loop {
            // SAFETY: by contract.
            match unsafe { io_uring_enter(self.ring.as_fd(), 1, 0, IoringEnterFlags::empty()) } {
                Ok(1) => {
                    self.under_way += 1;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                refused => {
                    // The kernel has not taken the entry.
                    self.counter(self.parameters.sq_off.tail).store(position, Release);
                    return Err(refused.err().unwrap_or(Errno::AGAIN));
                }
            }
        }
    }

    /// A read that has ended and was not returned yet. Makes no system call.
    pub fn ended(&mut self) -> Option<Ended> {
        let offsets = &self.parameters.cq_off;
        let head = self.counter(offsets.head);
        let position = head.load(Relaxed);
        // Whoever writes to the counters makes up no read.
        if self.under_way == 0 || position == self.counter(offsets.tail).load(Acquire) {
            return None;
        }
        let index = position & (self.parameters.cq_entries - 1);
        // SAFETY: the tail says that the kernel has written this entry. The kernel does not write
        // there again before the head says so.
        let (tag, result) = unsafe {
            let found = self.at::<io_uring_cqe>(offsets.cqes + index * size_of::<io_uring_cqe>() as u32);
            ((&raw const (*found).user_data).cast::<u64>().read(), (&raw const (*found).res).read())
        };
        head.store(position.wrapping_add(1), Release);
        self.under_way -= 1;
        let read = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        Some(Ended { tag, read })
    }
}

/// Lets a ring that is not enabled yet do nothing but read, for good, and enables it.
fn restrict(ring: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut only_reads = io_uring_restriction::default();
    only_reads.opcode = IoringRestrictionOp::SqeOp;
    only_reads.register_or_sqe_op_or_sqe_flags.sqe_op = IoringOp::Read;
    // SAFETY: the kernel reads the one restriction.
    unsafe {
        io_uring_register(ring, IoringRegisterOp::RegisterRestrictions, (&raw const only_reads).cast(), 1)?;
        io_uring_register(ring, IoringRegisterOp::RegisterEnableRings, core::ptr::null(), 0)?;
    }
    Ok(())
}

impl AsFd for ReadRing {
    /// The descriptor is readable for poll(2) when a read has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

#[cfg(test)]
mod tests;

//! The member's end of a network device: pages go over sockets to the supervisor, which serves the
//! device for the group ([`folioswap_group::swap_link`]; the serving end is `service`).
//!
//! The first socket comes with the welcome. Further sockets are made here on first use, and their
//! other ends are handed over: one for reads, so that no read waits behind a write, and one for
//! each asynchronous read. This module allocates nothing and needs no standard library.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use folioswap_devices::read_ring::ReadRing;
use folioswap_devices::{FileError, FileSlot};
use folioswap_group::swap_link::{Command, DATA_MAX, REPLY_BYTES, Reply, Request};
use folioswap_group::units::PAGE_SIZE;
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};
use rustix::thread::{Timespec, nanosleep};

/// Most asynchronous reads at a time; their tags are below this.
pub const READS_MAX: usize = 24;
/// Most pages in one part of a run that is written at once: servers answer requests of 64 KiB
/// fastest, several of them under way (`docs/results.md`, *Pages over NBD*).
pub const PART_PAGES_MAX: usize = 16;
const _: () = assert!(PART_PAGES_MAX * PAGE_SIZE <= DATA_MAX);
const _: () = assert!(PAGE_SIZE == folioswap_devices::PAGE_SIZE, "a slot holds a page");
/// Time between two looks at a socket that another thread uses.
const WAIT_NS: i64 = 50_000;

/// Stands for a socket that the supervisor does not serve, and that is not to be made again.
const UNSERVED: i32 = -2;

/// The sockets that carry one request at a time, whose sender waits for the answer.
#[derive(Clone, Copy)]
enum Waited {
    Writes = 0,
    Reads = 1,
}

/// A socket for one request at a time.
struct Socket {
    descriptor: AtomicI32,
    held: AtomicBool,
}

/// All sockets of a process to one device.
pub struct Links {
    waited: [Socket; 2],
    reads: [AtomicI32; READS_MAX],
    next_cookie: AtomicU64,
}

/// A socket belongs to this thread until the guard is dropped.
struct Held<'l>(&'l Socket);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.store(false, Release);
    }
}

impl Links {
    /// No socket yet.
    pub const fn none() -> Self {
        Links {
            waited: [const { Socket { descriptor: AtomicI32::new(-1), held: AtomicBool::new(false) } }; 2],
            reads: [const { AtomicI32::new(-1) }; READS_MAX],
            next_cookie: AtomicU64::new(1),
        }
    }

    /// Sets the first socket, in a process that has none, or whose others are its parent's and not
    /// its own.
    pub fn set(&self, descriptor: i32) {
        self.reads.iter().for_each(|read| read.store(-1, Relaxed));
        for socket in &self.waited {
            socket.descriptor.store(-1, Relaxed);
            socket.held.store(false, Relaxed);
        }
        self.waited[Waited::Writes as usize].descriptor.store(descriptor, Release);
    }

    /// Closes all sockets. The caller guarantees that no thread uses one, or will begin to.
    pub fn close(&self) {
        self.waited.iter().for_each(|socket| close(&socket.descriptor, -1));
        self.reads.iter().for_each(|read| close(read, -1));
    }

    fn cookie(&self) -> u64 {
        self.cookies(1)
    }

    /// The first of `count` consecutive cookies.
    fn cookies(&self, count: u64) -> u64 {
        self.next_cookie.fetch_add(count, Relaxed)
    }

    /// The socket for these requests. Waits until no other thread uses it.
    fn hold(&self, which: Waited) -> Result<(Held<'_>, BorrowedFd<'_>), Errno> {
        let socket = &self.waited[which as usize];
        while socket.held.swap(true, Acquire) {
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: WAIT_NS });
        }
        let held = Held(socket);
        match self.open(&socket.descriptor) {
            Ok(descriptor) => Ok((held, descriptor)),
            // No descriptor is free, so reads go behind writes.
            Err(_) if matches!(which, Waited::Reads) => {
                drop(held);
                self.hold(Waited::Writes)
            }
            Err(errno) => Err(errno),
        }
    }

    /// A socket, which is made if there is none. The caller guarantees that one thread at a time
    /// calls this for each socket.
    fn open<'l>(&'l self, cell: &'l AtomicI32) -> Result<BorrowedFd<'l>, Errno> {
        let mut descriptor = cell.load(Acquire);
        if descriptor == UNSERVED {
            return Err(Errno::NOTCONN);
        }
        if descriptor < 0 {
            let first = self.waited[Waited::Writes as usize].descriptor.load(Acquire);
            if first < 0 {
                return Err(Errno::NOTCONN);
            }
            // SAFETY: the descriptor is in the pager threads' table and is not closed while it
            // stands there.
            descriptor = another(unsafe { BorrowedFd::borrow_raw(first) })?.into_raw_fd();
            cell.store(descriptor, Release);
        }
        // SAFETY: as above.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }
}

/// Whether the supervisor does not serve a further socket, because it had no descriptor for the
/// other end.
fn is_unserved(errno: Errno) -> bool {
    matches!(errno, Errno::CONNRESET | Errno::PIPE)
}

/// Closes a socket that no thread uses any more.
fn close(cell: &AtomicI32, next: i32) {
    let unused = cell.swap(next, Relaxed);
    if unused >= 0 {
        // SAFETY: the caller is the only thread that uses this cell, and no other finds the
        // descriptor there any more.
        drop(unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(unused) });
    }
}

/// Makes a further socket and hands its other end over by the first one.
fn another(first: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let request = Request { command: Command::Attach, cookie: 0, offset: 0, length: 0 }.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let carried = [theirs.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&carried));
    sendmsg(first, &[IoSlice::new(&request)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(ours)
}

fn send(socket: BorrowedFd<'_>, request: Request, data: &[u8]) -> Result<(), Errno> {
    let head = request.encode();
    let parts = [IoSlice::new(&head), IoSlice::new(data)];
    // No signal reaches a pager thread, so nothing interrupts the call.
    sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL).map(drop)
}

/// The error in a reply. A server that is gone has closed its end.
fn reply_error(received: &[u8]) -> Errno {
    match Reply::decode(received) {
        Some(Reply { error, .. }) if error != 0 => Errno::from_raw_os_error(error as i32),
        _ => Errno::CONNRESET,
    }
}

/// Of two answers to parts of one run, the one that decides about the run's slots. An answer after
/// which a write may still be carried out counts for all parts; a refusal of one part counts more
/// than another part that was not sent.
fn worse(one: Option<Errno>, error: u32) -> Option<Errno> {
    let other = (error != 0).then(|| Errno::from_raw_os_error(error as i32));
    let weight = |errno: &Errno| match silence_of(*errno) {
        Some(Silence::MayBeDone) => 2,
        None => 1,
        Some(Silence::NotAsked) => 0,
    };
    [one, other].into_iter().flatten().max_by_key(weight)
}

/// The kind of silence that this error stands for; `None` for an error about the slot itself.
pub fn silence_of(errno: Errno) -> Option<Silence> {
    match errno {
        Errno::HOSTDOWN | Errno::NODEV => Some(Silence::NotAsked),
        Errno::TIMEDOUT | Errno::CONNRESET => Some(Silence::MayBeDone),
        _ => None,
    }
}

/// The reason why a server's answer to a write is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The server was not asked, or no longer has the slots, so its actions there do not matter.
    NotAsked,
    /// The server was asked, and may write at any time.
    MayBeDone,
}

/// An open network device.
#[derive(Clone, Copy)]
pub struct LinkDevice<'l>(pub &'l Links);

impl LinkDevice<'_> {
    /// Writes the parts one after the other, beginning at `slot`, with all of them under way at a
    /// time. No part has more than [`DATA_MAX`] bytes.
    ///
    /// # Errors
    /// [`FileError::Write`] with the error that says most about the slots (see [`silence_of`]).
    pub fn write(self, slot: FileSlot, parts: &[&[u8]]) -> Result<(), FileError> {
        self.write_all(slot, parts).map_err(|errno| FileError::Write { slot, errno })
    }

    fn write_all(self, slot: FileSlot, parts: &[&[u8]]) -> Result<(), Errno> {
        debug_assert!(parts.iter().all(|part| part.len() <= DATA_MAX));
        let (_held, socket) = self.0.hold(Waited::Writes)?;
        let (first_cookie, mut offset) = (self.0.cookies(parts.len() as u64), slot.offset_bytes());
        for (cookie, part) in (first_cookie..).zip(parts) {
            let length = part.len() as u32;
            send(socket, Request { command: Command::Write, cookie, offset, length }, part)?;
            offset += u64::from(length);
        }
        let mut failed = None;
        for _ in parts {
            let mut reply = [0; REPLY_BYTES];
            let (_, received) = recv(socket, &mut reply, RecvFlags::empty())?;
            match Reply::decode(&reply[..received]) {
                Some(Reply { error, cookie }) if cookie.wrapping_sub(first_cookie) < parts.len() as u64 => {
                    failed = worse(failed, error);
                }
                // The server is gone, or violates the protocol.
                _ => return Err(Errno::CONNRESET),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Reads `pages.len()` bytes from `slot` on.
    ///
    /// # Errors
    /// [`FileError::Read`].
    pub fn read(self, slot: FileSlot, pages: &mut [u8]) -> Result<(), FileError> {
        let read = match self.read_all(Waited::Reads, slot, pages) {
            // The supervisor itself gave the first socket, so it serves that one.
            Err(errno) if is_unserved(errno) => self.read_all(Waited::Writes, slot, pages),
            read => read,
        };
        read.map_err(|errno| FileError::Read { slot, errno })
    }

    fn read_all(self, over: Waited, slot: FileSlot, pages: &mut [u8]) -> Result<(), Errno> {
        let (held, socket) = self.0.hold(over)?;
        let read = self.read_over(socket, slot, pages);
        let is_first = core::ptr::eq(held.0, &raw const self.0.waited[Waited::Writes as usize]);
        if !is_first && read.is_err_and(is_unserved) {
            close(&held.0.descriptor, UNSERVED);
        }
        read
    }

    fn read_over(self, socket: BorrowedFd<'_>, slot: FileSlot, pages: &mut [u8]) -> Result<(), Errno> {
        let mut offset = slot.offset_bytes();
        for part in pages.chunks_mut(DATA_MAX) {
            let (cookie, length) = (self.0.cookie(), part.len() as u32);
            send(socket, Request { command: Command::Read, cookie, offset, length }, &[])?;
            let (_, received) = recv(socket, &mut *part, RecvFlags::empty())?;
            if received != part.len() {
                return Err(reply_error(&part[..received]));
            }
            offset += u64::from(length);
        }
        Ok(())
    }

    /// Begins a read that `ring` completes under `tag` (below [`READS_MAX`]).
    ///
    /// # Errors
    /// [`Errno::AGAIN`] for a tag out of range; otherwise the errors of the socket or the ring.
    ///
    /// # Safety
    /// As [`ReadRing::begin`].
    pub unsafe fn begin_read(
        self,
        ring: &mut ReadRing,
        slot: FileSlot,
        pages: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Result<(), Errno> {
        let cell = self.0.reads.get(tag as usize).ok_or(Errno::AGAIN)?;
        let socket = self.0.open(cell)?;
        let (cookie, offset, length) = (self.0.cookie(), slot.offset_bytes(), bytes as u32);
        let request = Request { command: Command::Read, cookie, offset, length };
        send(socket, request, &[]).inspect_err(|_| close(cell, UNSERVED))?;
        // SAFETY: by the caller's contract.
        let begun = unsafe { ring.begin_receive(socket, pages, bytes, tag) };
        if begun.is_err() {
            // No request waits for this answer, and none may take it for its own.
            close(cell, -1);
        }
        begun
    }
}

//! The member's end of a network device: pages go over sockets to the supervisor, which serves the device for the
//! group ([`folioswap_group::swap_link`]; the serving end is `service`).
//!
//! The first socket comes with the welcome. Further sockets are made here on first use, and their other ends are
//! handed over: one for reads, so that no read waits behind a write, and one for each read that goes on while the
//! caller does something else. This module allocates nothing and needs no standard library.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use folioswap_devices::read_ring::ReadRing;
use folioswap_devices::{FileError, FileSlot, PAGE_SIZE};
use folioswap_group::swap_link::{Command, DATA_MAX, REPLY_BYTES, Reply, Request};
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};
use rustix::thread::{Timespec, nanosleep};

/// Reads that can go on at a time; their tags are below this.
pub const READS_MAX: usize = 24;
/// Pages of one part of a run that is written at once: requests of 64 KiB, several under way, are what servers answer fastest
/// (`docs/measurements.md`, *Pages over NBD*).
pub const PART_PAGES_MAX: usize = 16;
const _: () = assert!(PART_PAGES_MAX * PAGE_SIZE <= DATA_MAX);
/// Between two looks at a socket that another thread uses.
const WAIT_NS: i64 = 50_000;

/// In the place of a socket that nobody serves, and that is not to be made again.
const UNSERVED: i32 = -2;

/// Sockets that are used for one request at a time, waited for by who makes it.
#[derive(Clone, Copy)]
enum Waited {
    Writes = 0,
    Reads = 1,
}

/// One of them.
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

/// A socket is this thread's until it is dropped.
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

    /// The first socket, in a process that has none, or whose others are its parent's and not its own.
    pub fn set(&self, descriptor: i32) {
        self.reads.iter().for_each(|read| read.store(-1, Relaxed));
        for socket in &self.waited {
            socket.descriptor.store(-1, Relaxed);
            socket.held.store(false, Relaxed);
        }
        self.waited[Waited::Writes as usize].descriptor.store(descriptor, Release);
    }

    /// Closes all of them. Nobody uses one, or will begin to.
    pub fn close(&self) {
        self.waited.iter().for_each(|socket| close(&socket.descriptor, -1));
        self.reads.iter().for_each(|read| close(read, -1));
    }

    fn cookie(&self) -> u64 {
        self.cookies(1)
    }

    /// The first of so many that follow each other.
    fn cookies(&self, count: u64) -> u64 {
        self.next_cookie.fetch_add(count, Relaxed)
    }

    /// The socket of these requests, when no other thread uses it any more.
    fn hold(&self, which: Waited) -> Result<(Held<'_>, BorrowedFd<'_>), Errno> {
        let socket = &self.waited[which as usize];
        while socket.held.swap(true, Acquire) {
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: WAIT_NS });
        }
        let held = Held(socket);
        match self.open(&socket.descriptor) {
            Ok(descriptor) => Ok((held, descriptor)),
            // No descriptor is free: reads go behind writes.
            Err(_) if matches!(which, Waited::Reads) => {
                drop(held);
                self.hold(Waited::Writes)
            }
            Err(errno) => Err(errno),
        }
    }

    /// A socket, which is made if there is none. One thread at a time for each.
    fn open<'l>(&'l self, place: &'l AtomicI32) -> Result<BorrowedFd<'l>, Errno> {
        let mut descriptor = place.load(Acquire);
        if descriptor == UNSERVED {
            return Err(Errno::NOTCONN);
        }
        if descriptor < 0 {
            let first = self.waited[Waited::Writes as usize].descriptor.load(Acquire);
            if first < 0 {
                return Err(Errno::NOTCONN);
            }
            // SAFETY: it is in the pager threads' table and is not closed while it stands there.
            descriptor = another(unsafe { BorrowedFd::borrow_raw(first) })?.into_raw_fd();
            place.store(descriptor, Release);
        }
        // SAFETY: as above.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }
}

/// Nobody serves a further socket: its other end could not be taken, for want of descriptors there.
fn is_unserved(errno: Errno) -> bool {
    matches!(errno, Errno::CONNRESET | Errno::PIPE)
}

/// Closes a socket that nobody uses any more.
fn close(place: &AtomicI32, next: i32) {
    let unused = place.swap(next, Relaxed);
    if unused >= 0 {
        // SAFETY: the caller is the only one that uses this place, and nobody finds the descriptor there any more.
        drop(unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(unused) });
    }
}

/// A further socket, whose other end was handed over by the first one.
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
    // No signal reaches a pager thread, so nothing interrupts it.
    sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL).map(drop)
}

/// Whoever serves the device is gone when its end is closed.
fn reply_error(received: &[u8]) -> Errno {
    match Reply::decode(received) {
        Some(Reply { error, .. }) if error != 0 => Errno::from_raw_os_error(error as i32),
        _ => Errno::CONNRESET,
    }
}

/// Of two answers to parts of one run, the one that says what has to be done about its slots: what may be done still counts for all of
/// them, and what a part of them was refused for more than that the others were not asked for.
fn worse(one: Option<Errno>, error: u32) -> Option<Errno> {
    let other = (error != 0).then(|| Errno::from_raw_os_error(error as i32));
    let weight = |errno: &Errno| match silence_of(*errno) {
        Some(Silence::MayBeDone) => 2,
        None => 1,
        Some(Silence::NotAsked) => 0,
    };
    [one, other].into_iter().flatten().max_by_key(weight)
}

/// Does this error say that a server is not there (and nothing of the slot)?
pub fn silence_of(errno: Errno) -> Option<Silence> {
    match errno {
        Errno::HOSTDOWN | Errno::NODEV => Some(Silence::NotAsked),
        Errno::TIMEDOUT | Errno::CONNRESET => Some(Silence::MayBeDone),
        _ => None,
    }
}

/// Why a server's answer to a write is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It was not asked, or is not the one any more that has the slots: what it does there matters to nobody.
    NotAsked,
    /// It was asked, and may do it at any time.
    MayBeDone,
}

/// A network device, open.
#[derive(Clone, Copy)]
pub struct LinkDevice<'l>(pub &'l Links);

impl LinkDevice<'_> {
    /// Writes the parts one after the other, beginning at `slot`; all are under way at a time. No part has more than
    /// [`DATA_MAX`] bytes.
    ///
    /// # Errors
    /// [`FileError::Write`] with the error that says most about the slots (see [`silence_of`]).
    pub fn write(self, slot: FileSlot, parts: &[&[u8]]) -> Result<(), FileError> {
        self.write_all(slot, parts).map_err(|errno| FileError::Write { slot, errno })
    }

    /// All parts are under way at a time.
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
                // Whoever serves the device is gone, or says what nobody says.
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
            // The first socket came from who serves.
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
    /// [`Errno::AGAIN`] for a tag out of range; what the socket or the ring says otherwise.
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
        let place = self.0.reads.get(tag as usize).ok_or(Errno::AGAIN)?;
        let socket = self.0.open(place)?;
        let (cookie, offset, length) = (self.0.cookie(), slot.offset_bytes(), bytes as u32);
        let request = Request { command: Command::Read, cookie, offset, length };
        send(socket, request, &[]).inspect_err(|_| close(place, UNSERVED))?;
        // SAFETY: the caller's.
        let begun = unsafe { ring.begin_receive(socket, pages, bytes, tag) };
        if begun.is_err() {
            // Its answer comes to nobody, and nobody may take it for another's.
            close(place, -1);
        }
        begun
    }
}

//! The userfaultfd, by its own ioctls.
//!
//! Context of every call: any thread of the process that the descriptor belongs to; `copy`, `zero`
//! and `wake` also from another process. Sources: ioctl_userfaultfd(2), userfaultfd(2).

use crate::kernel::{failing, pagemap, sys};
use crate::units::PAGE;
use linux_raw_sys::general as raw;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

mod open;

pub use open::{FEATURES, Faults, Origins};

const fn iowr(nr: u32, size: usize) -> u32 {
    (3 << 30) | ((size as u32) << 16) | (raw::UFFDIO << 8) | nr
}

const fn ior(nr: u32, size: usize) -> u32 {
    (2 << 30) | ((size as u32) << 16) | (raw::UFFDIO << 8) | nr
}

const API: u32 = iowr(raw::_UFFDIO_API, size_of::<raw::uffdio_api>());

/// The request by which memory is registered.
pub const REGISTER: u32 = iowr(raw::_UFFDIO_REGISTER, size_of::<raw::uffdio_register>());

const UNREGISTER: u32 = ior(raw::_UFFDIO_UNREGISTER, size_of::<raw::uffdio_range>());

const WAKE: u32 = ior(raw::_UFFDIO_WAKE, size_of::<raw::uffdio_range>());

const COPY: u32 = iowr(raw::_UFFDIO_COPY, size_of::<raw::uffdio_copy>());

const ZEROPAGE: u32 = iowr(raw::_UFFDIO_ZEROPAGE, size_of::<raw::uffdio_zeropage>());

const MOVE: u32 = iowr(raw::_UFFDIO_MOVE, size_of::<raw::uffdio_move>());

const WRITEPROTECT: u32 = iowr(raw::_UFFDIO_WRITEPROTECT, size_of::<raw::uffdio_writeprotect>());

const CONTINUE: u32 = iowr(raw::_UFFDIO_CONTINUE, size_of::<raw::uffdio_continue>());

const POISON: u32 = iowr(raw::_UFFDIO_POISON, size_of::<raw::uffdio_poison>());

/// The part of a range that was done before an operation stopped, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Bytes done from the start of the range.
    pub done: usize,
    /// The reason.
    pub why: Errno,
}

/// The way in which a range is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Memory of the program: the pager serves faults on missing pages, and write faults on pages
    /// that it protected.
    Program,
    /// Only so that pages can be moved into it; the kernel serves missing pages.
    MoveTarget,
}

/// A userfaultfd; the descriptor is in the table of the pager threads.
#[derive(Clone, Copy, Debug)]
pub struct Userfault(pub i32);

#[cfg(test)]
std::thread_local! {
    /// Bytes that tests let one copy take: the kernel is said to have no memory for more at once.
    pub(crate) static COPIED_AT_ONCE: core::cell::Cell<usize> = const { core::cell::Cell::new(usize::MAX) };
    /// The answer to each move that follows one which has done a part, where a test gives one.
    pub(crate) static AFTER_A_PART: core::cell::Cell<Option<Errno>> = const { core::cell::Cell::new(None) };
    /// Whether the last move has done a part.
    static HAS_DONE_A_PART: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// How often a page is filled to see whose a userfaultfd is, as long as the kernel has no memory or
/// is busy.
const FILLS_MAX: u32 = 100;

impl Userfault {
    /// Registers `start..start+bytes`. Registering again is no error.
    pub fn register(self, start: usize, bytes: usize, watch: Watch) -> Result<(), Errno> {
        let mode = match watch {
            Watch::Program => raw::UFFDIO_REGISTER_MODE_MISSING | raw::UFFDIO_REGISTER_MODE_WP,
            Watch::MoveTarget => raw::UFFDIO_REGISTER_MODE_WP,
        };
        let mut argument = raw::uffdio_register {
            range: raw::uffdio_range { start: start as u64, len: bytes as u64 },
            mode: mode as u64,
            ioctls: 0,
        };
        // SAFETY: as demanded; registering alone changes no contents.
        unsafe { sys::ioctl(self.0, REGISTER, &raw mut argument) }.map(|_| ())
    }

    /// Undoes [`Userfault::register`].
    ///
    /// # Safety
    /// No page of the range may be swapped out: it would read as zeroes.
    pub unsafe fn unregister(self, start: usize, bytes: usize) -> Result<(), Errno> {
        let mut range = raw::uffdio_range { start: start as u64, len: bytes as u64 };
        // SAFETY: as demanded.
        unsafe { sys::ioctl(self.0, UNREGISTER, &raw mut range) }.map(|_| ())
    }

    /// Wakes the threads that wait for a fault in the range; they look again.
    pub fn wake(self, start: usize, bytes: usize) {
        let mut range = raw::uffdio_range { start: start as u64, len: bytes as u64 };
        // SAFETY: as demanded.
        let _ = unsafe { sys::ioctl(self.0, WAKE, &raw mut range) };
    }

    /// Copies `bytes` from `from` to missing pages at `to`, and wakes the threads that wait for
    /// them.
    ///
    /// # Safety
    /// `from` must be readable memory that no userfaultfd serves.
    pub unsafe fn copy(self, to: usize, from: *const u8, bytes: usize) -> Result<(), Stopped> {
        // SAFETY: the caller's.
        unsafe { self.copy_with(to, from, bytes, 0) }
    }

    /// As [`Userfault::copy`], with the pages write-protected from their first moment: the first
    /// write to each is a fault with [`Access::WriteProtected`].
    ///
    /// # Safety
    /// As for [`Userfault::copy`].
    pub unsafe fn copy_protected(self, to: usize, from: *const u8, bytes: usize) -> Result<(), Stopped> {
        // SAFETY: the caller's.
        unsafe { self.copy_with(to, from, bytes, raw::UFFDIO_COPY_MODE_WP as u64) }
    }

    unsafe fn copy_with(self, to: usize, from: *const u8, bytes: usize, mode: u64) -> Result<(), Stopped> {
        #[cfg(test)]
        if bytes > COPIED_AT_ONCE.get() {
            return Err(Stopped { done: 0, why: Errno::NOMEM });
        }
        let (bytes, rest) = Self::as_it_may_fail(bytes, [Errno::AGAIN, Errno::NOMEM])?;
        let mut argument =
            raw::uffdio_copy { dst: to as u64, src: from as u64, len: bytes as u64, mode, copy: 0 };
        // SAFETY: as demanded.
        let result = unsafe { sys::ioctl(self.0, COPY, &raw mut argument) };
        Self::outcome(result, argument.copy)?;
        rest
    }

    /// Lifts the write protection of a range, where there is one, and wakes the threads that wait
    /// there. Where nothing is present, nothing changes.
    ///
    /// # Errors
    /// EAGAIN: an event waits to be read. ENOENT: the range is not registered (any more).
    pub fn unprotect(self, start: usize, bytes: usize) -> Result<(), Errno> {
        failing::with_one_of([Errno::AGAIN])?;
        let range = raw::uffdio_range { start: start as u64, len: bytes as u64 };
        let mut argument = raw::uffdio_writeprotect { range, mode: 0 };
        // SAFETY: as demanded; contents do not change.
        unsafe { sys::ioctl(self.0, WRITEPROTECT, &raw mut argument) }.map(|_| ())
    }

    /// Write-protects the pages that are present in a range: the first write to each is a fault
    /// with [`Access::WriteProtected`]. Where nothing is present, nothing changes.
    ///
    /// # Errors
    /// EAGAIN: an event waits to be read. ENOENT: a part of the range is not registered (any more).
    pub fn protect(self, start: usize, bytes: usize) -> Result<(), Errno> {
        failing::with_one_of([Errno::AGAIN])?;
        let range = raw::uffdio_range { start: start as u64, len: bytes as u64 };
        const MODE_WP: u64 = 1;
        let mut argument = raw::uffdio_writeprotect { range, mode: MODE_WP };
        // SAFETY: as demanded; contents do not change.
        unsafe { sys::ioctl(self.0, WRITEPROTECT, &raw mut argument) }.map(|_| ())
    }

    /// Maps the zero page at missing pages.
    pub fn zero(self, to: usize, bytes: usize) -> Result<(), Stopped> {
        let (bytes, rest) = Self::as_it_may_fail(bytes, [Errno::AGAIN, Errno::NOMEM])?;
        let mut argument = raw::uffdio_zeropage {
            range: raw::uffdio_range { start: to as u64, len: bytes as u64 },
            mode: 0,
            zeropage: 0,
        };
        // SAFETY: as demanded; only missing pages are filled.
        let result = unsafe { sys::ioctl(self.0, ZEROPAGE, &raw mut argument) };
        Self::outcome(result, argument.zeropage)?;
        rest
    }

    /// Checks that the page is in a mapping that is registered now. Changes nothing. Cost: 0.2 µs.
    ///
    /// A thread must check before it moves pages: UFFDIO_MOVE takes them out of any anonymous
    /// mapping, and a touch of one of them in a mapping that is not registered reads zeroes. The
    /// mapping cannot be removed unnoticed after the answer: then an event waits, and a move says
    /// EAGAIN.
    ///
    /// # Errors
    /// EAGAIN: an event waits to be read. ENOENT: it is not registered, or nothing is mapped there.
    pub fn check_registered(self, page: usize) -> Result<(), Errno> {
        let mut argument = raw::uffdio_continue {
            range: raw::uffdio_range { start: page as u64, len: 4096 },
            mode: 0,
            mapped: 0,
        };
        // SAFETY: as demanded. The request is refused for anonymous memory, but only after the
        // kernel has looked at the mapping.
        match unsafe { sys::ioctl(self.0, CONTINUE, &raw mut argument) } {
            Ok(_) | Err(Errno::INVAL) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Moves present pages from `from` to missing ones at `to`. The move is atomic for each page
    /// against running writers.
    ///
    /// # Safety
    /// The caller must know the state of every page of both ranges, and that `from` is registered
    /// (the kernel does not ask), so that a thread that touches a moved page is served.
    pub unsafe fn move_pages(self, to: usize, from: usize, bytes: usize) -> Result<(), Stopped> {
        #[cfg(test)]
        if let (true, Some(why)) = (HAS_DONE_A_PART.take(), AFTER_A_PART.get()) {
            return Err(Stopped { done: 0, why });
        }
        let (bytes, rest) = Self::as_it_may_fail(bytes, [Errno::AGAIN, Errno::NOMEM, Errno::BUSY])?;
        let mut argument =
            raw::uffdio_move { dst: to as u64, src: from as u64, len: bytes as u64, mode: 0, move_: 0 };
        // SAFETY: as demanded.
        let result = unsafe { sys::ioctl(self.0, MOVE, &raw mut argument) };
        #[cfg(test)]
        HAS_DONE_A_PART.set(result.is_err() && argument.move_ > 0);
        Self::outcome(result, argument.move_)?;
        rest
    }

    /// How much of a request over `bytes` is made, and what is said when so much was done. All of
    /// it, unless a test wants it to fail: with one of these errors, or after a half.
    fn as_it_may_fail<const N: usize>(
        bytes: usize,
        errors: [Errno; N],
    ) -> Result<(usize, Result<(), Stopped>), Stopped> {
        let half = (bytes / 2).next_multiple_of(PAGE);
        match failing::next() {
            None => Ok((bytes, Ok(()))),
            Some(failure) if half < bytes && failure.one_of([true, false]) => {
                Ok((half, Err(Stopped { done: half, why: Errno::AGAIN })))
            }
            Some(failure) => Err(Stopped { done: 0, why: failure.one_of(errors) }),
        }
    }

    /// Makes a missing page raise SIGBUS when it is touched.
    pub fn poison(self, page: usize) -> Result<(), Errno> {
        let mut argument = raw::uffdio_poison {
            range: raw::uffdio_range { start: page as u64, len: 4096 },
            mode: 0,
            updated: 0,
        };
        // SAFETY: as demanded; only a missing page is changed.
        unsafe { sys::ioctl(self.0, POISON, &raw mut argument) }.map(|_| ())
    }

    /// Whether the process that this belongs to has ended, or become another image.
    pub fn is_gone(self) -> bool {
        // This is the lowest page that a process could map; no page there is registered, so a
        // living process answers ENOENT. (The other requests have no error of their own for a
        // memory that is gone.)
        let range = raw::uffdio_range { start: 64 << 10, len: 4096 };
        let mut argument = raw::uffdio_writeprotect { range, mode: 0 };
        // SAFETY: as demanded; lifting a protection that is not there changes nothing.
        let answer = unsafe { sys::ioctl(self.0, WRITEPROTECT, &raw mut argument) };
        answer == Err(Errno::SRCH)
    }

    /// Whether this userfaultfd is the calling process's. `pagemap` is that of the calling process.
    /// Cost: six system calls.
    ///
    /// In a fork freeze another thread's bare clone(2) may come before the fork, and the descriptor
    /// that the parent took for its child's would belong to that child: using it would change
    /// another process.
    ///
    /// # Errors
    /// mmap(2)'s, and the pagemap's.
    pub fn is_own(self, pagemap: i32) -> Result<bool, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which no other code knows.
        let page = unsafe { mmap_anonymous(core::ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) }?;
        // Zeroes are put where nothing is: they do no harm to another process either.
        // An error that passes says nothing about whose it is.
        let mut fills = (0..FILLS_MAX).map(|_| self.zero(page as usize, PAGE));
        let is_passing = |filled: &Result<(), Stopped>| {
            matches!(filled, Err(Stopped { why: Errno::AGAIN | Errno::NOMEM, .. }))
        };
        let is_filled = self.register(page as usize, PAGE, Watch::MoveTarget).is_ok()
            && fills.find(|filled| !is_passing(filled)).is_some_and(|filled| filled.is_ok());
        let is_there = pagemap::now(pagemap, page as usize, 1).map(|now| now.present != 0);
        // SAFETY: mapped above, and nothing is there but zeroes. The page is unregistered first,
        // because this thread would be the reader of the event of an unmapping.
        unsafe {
            let _ = self.unregister(page as usize, PAGE);
            let _ = munmap(page, PAGE);
        }
        Ok(is_filled && is_there?)
    }

    /// Reads messages without waiting; returns how many.
    ///
    /// # Errors
    /// MFILE: the program allows itself too few descriptors for the one that the next message
    /// brings; the message stays where it is.
    pub fn read(self, messages: &mut [Message]) -> Result<usize, Errno> {
        // SAFETY: the kernel writes whole messages into the buffer; every bit pattern is valid.
        let result = unsafe {
            sys::syscall(
                raw::__NR_read,
                [self.0 as usize, messages.as_mut_ptr() as usize, size_of_val(messages), 0, 0, 0],
            )
        };
        match result {
            Ok(bytes) => Ok(bytes / size_of::<Message>()),
            Err(Errno::MFILE) => Err(Errno::MFILE),
            Err(_) => Ok(0),
        }
    }

    fn outcome(result: Result<usize, Errno>, done: i64) -> Result<(), Stopped> {
        match result {
            Ok(_) => Ok(()),
            // A part was done: the kernel says EAGAIN and how much; the next attempt gives the
            // reason.
            Err(why) => Err(Stopped { done: if done > 0 { done as usize } else { 0 }, why }),
        }
    }
}

/// One message, as the kernel writes it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Message {
    event: u8,
    reserved: [u8; 7],
    words: [u64; 3],
}

const _: () = assert!(size_of::<Message>() == 32);

/// The contents of a message. Addresses of faults are as the hardware gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the fields of uffd_msg")]
pub enum Event {
    Fault { address: usize, access: Access, thread: u32 },
    Fork { child: i32 },
    Remap { from: usize, to: usize, bytes: usize },
    Remove { start: usize, end: usize },
    Unmap { start: usize, end: usize },
    Unknown,
}

/// The access of a faulting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Write to a page that is present and write-protected.
    WriteProtected,
}

impl Access {
    fn of(flags: u64) -> Self {
        if flags & raw::UFFD_PAGEFAULT_FLAG_WP as u64 != 0 {
            Access::WriteProtected
        } else if flags & raw::UFFD_PAGEFAULT_FLAG_WRITE as u64 != 0 {
            Access::Write
        } else {
            Access::Read
        }
    }
}

impl Message {
    /// An empty message, for buffers.
    pub const EMPTY: Message = Message { event: 0, reserved: [0; 7], words: [0; 3] };

    /// Decodes the message.
    pub fn event(&self) -> Event {
        let [a, b, c] = self.words;
        match self.event as u32 {
            raw::UFFD_EVENT_PAGEFAULT => {
                Event::Fault { address: b as usize, access: Access::of(a), thread: c as u32 }
            }
            raw::UFFD_EVENT_FORK => Event::Fork { child: a as u32 as i32 },
            raw::UFFD_EVENT_REMAP => Event::Remap { from: a as usize, to: b as usize, bytes: c as usize },
            raw::UFFD_EVENT_REMOVE => Event::Remove { start: a as usize, end: b as usize },
            raw::UFFD_EVENT_UNMAP => Event::Unmap { start: a as usize, end: b as usize },
            _ => Event::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;

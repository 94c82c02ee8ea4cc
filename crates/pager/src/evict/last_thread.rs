//! The end of a process whose threads have all ended by themselves, each by a bare exit(2). Alone
//! the process would end with the last of them; here the pager's threads are left.

use crate::evict::evictor::Evictor;
use crate::kernel::proc::{FirstThread, thread_count, thread_flags};
use crate::kernel::sys;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::protocol::ProcFile;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};

/// The time between two looks: the kernel tells of no such end. A look reads one file of `/proc` as
/// long as the first thread goes on.
const LOOK_NS: u64 = 500_000_000;

/// Looks in a row that must find no thread.
const LOOKS: u32 = 2;

/// A thread in which the kernel works for an io_uring (`PF_IO_WORKER`).
const IO_WORKER: u64 = 0x10;

/// Room for the names of some thirty threads, so that one system call lists all that can be left.
const LIST_BYTES: usize = 1 << 10;

/// The threads when the program has none left and the kernel made none: the first one, which stays
/// in the list until the last has ended, handler and evictor.
const ENDED: u64 = 3;

impl Evictor {
    /// Ends the process, with the status of its first thread, if the program has no thread left.
    /// Then none is left that could start one.
    ///
    /// The kernel would give the status of the last thread, which nobody can ask for any more.
    pub(crate) fn end_with_last_thread(&mut self, now: u64) {
        if self.engine.embedded.is_on() || !self.survey.threads_due.take(now, LOOK_NS) {
            return;
        }
        let text = self.engine.read_file(ProcFile::Stat, &mut self.survey.text);
        let Some(FirstThread::Ended { status }) = FirstThread::of(text) else { return };
        let has_none = thread_count(text) == Some(ENDED) || self.only_others_are_left();
        self.survey.without_thread = if has_none { self.survey.without_thread + 1 } else { 0 };
        if self.survey.without_thread >= LOOKS {
            sys::exit_group(status);
        }
    }

    /// Whether all threads that are left are the first one, which has ended, the pager's, and the
    /// kernel's. False where nobody can tell, as in a process that sees no `/proc`.
    fn only_others_are_left(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = openat(CWD, c"/proc/self/task", flags, Mode::empty()) else { return false };
        let ours = [&self.engine.threads.handler, &self.engine.threads.evictor].map(|it| it.load(Relaxed));
        let mut room = [MaybeUninit::uninit(); LIST_BYTES];
        let mut list = RawDir::new(&directory, &mut room);
        let mut seen = 0;
        while let Some(entry) = list.next() {
            let Ok(entry) = entry else { return false };
            let name = entry.file_name().to_bytes();
            let Some(thread) = number(name) else { continue };
            seen += 1;
            if !ours.contains(&thread) && !is_idle_or_ended(directory.as_fd(), name) {
                return false;
            }
        }
        // The list leaves out a thread that ends while it is made, and then what that one started.
        let mut text = [0; 512];
        thread_count(self.engine.read_file(ProcFile::Stat, &mut text)) == Some(seen)
    }
}

fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

/// Whether a thread runs nothing of the program: the kernel's worker, or a thread that has ended.
fn is_idle_or_ended(directory: BorrowedFd<'_>, thread: &[u8]) -> bool {
    const FILE: &[u8] = b"/stat\0";
    let mut path = [0; 24];
    let length = thread.len() + FILE.len();
    if length > path.len() {
        return false;
    }
    path[..thread.len()].copy_from_slice(thread);
    path[thread.len()..length].copy_from_slice(FILE);
    let Ok(path) = core::ffi::CStr::from_bytes_with_nul(&path[..length]) else { return false };
    let Ok(file) = openat(directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        // It ended meanwhile, or no descriptor is left: the next look tells.
        return false;
    };
    let mut text = [0; 512];
    let text = rustix::io::read(&file, &mut text).map_or(&[][..], |length| &text[..length]);
    matches!(FirstThread::of(text), Some(FirstThread::Ended { .. }))
        || thread_flags(text).is_some_and(|flags| flags & IO_WORKER != 0)
}

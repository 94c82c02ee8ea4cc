//! The confinement of a pager that is a process of its own: from its start on it can do nothing for
//! whoever takes it over that he could not do himself.
//!
//! What takes rights is open by then: the program's files of `/proc`, the devices, the group's
//! socket, the ring for reads. The pager opens only files of the program in `/proc`, again and
//! again, since a program may allow itself only a handful of descriptors.

use crate::engine::Engine;
use crate::engine::descriptors;
use crate::kernel::filter::{self, Opening, Threads};
use crate::kernel::landlock::{self, Landlock};
use crate::kernel::proc::{Shown, field_number};
use crate::kernel::process::Allowance;
use crate::kernel::{rights, sys};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use folioswap_group::protocol::ProcFile;
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// What the confined threads of this process's pager may do, as it was found out at the start.
#[repr(C)]
pub struct Confinement {
    /// Filters of system calls that the supervisor has, and so everything that it started.
    filters_at_start: AtomicU32,
    /// A [`Confining`] as a number.
    how: AtomicU32,
    /// The directories of `/proc` that show the pager and the program; -1: none.
    own: AtomicI32,
    program: AtomicI32,
    /// The sum of [`ONE_THREAD`] and [`OPENS_NOTHING`] over the threads that wait for their filter.
    waiting: AtomicU32,
}

/// In the count of those that wait for their filter.
const ONE_THREAD: u32 = 1;
/// There, of a thread for which Landlock does not say which files it may open.
const OPENS_NOTHING: u32 = 0x100;
/// Threads of a pager.
const THREADS: u32 = 2;

/// How a pager is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Confining {
    /// Not at all: the program had put itself under a filter before this pager was made. That may
    /// end a process which makes calls that the program does not, and the pager has no right that
    /// the program did not have under the filter.
    NotAgain = 0,
    /// It opens files beneath the two directories.
    Beneath = 1,
    /// It opens files of `/proc`: there are too few descriptors for directories that stay open.
    InProc = 2,
    /// It opens nothing: the kernel has no Landlock.
    OpensNothing = 3,
}

impl Confinement {
    /// Notes how many filters the supervisor has.
    pub(crate) fn note_filters(&self, count: u32) {
        self.filters_at_start.store(count, Relaxed);
    }

    pub(crate) fn forget(&self) {
        self.how.store(Confining::NotAgain as u32, Relaxed);
        self.own.store(-1, Relaxed);
        self.program.store(-1, Relaxed);
        self.waiting.store(0, Relaxed);
    }

    /// Lets the calling thread open nothing but files beneath the two directories.
    fn open_beneath(&self) -> Result<(), Errno> {
        // SAFETY: both are in the pager threads' table and stay open.
        let borrow = |descriptor: i32| unsafe { BorrowedFd::borrow_raw(descriptor) };
        match (self.own().map(borrow), self.program().map(borrow)) {
            (None, None) => landlock::read_only_beneath(&[]),
            (Some(one), None) | (None, Some(one)) => landlock::read_only_beneath(&[one]),
            (Some(own), Some(program)) => landlock::read_only_beneath(&[own, program]),
        }
    }

    /// The directory of `/proc` that shows the pager itself, if it stays open.
    pub(crate) fn own(&self) -> Option<i32> {
        Some(self.own.load(Relaxed)).filter(|&directory| directory >= 0)
    }

    /// The one that shows the program.
    pub(crate) fn program(&self) -> Option<i32> {
        Some(self.program.load(Relaxed)).filter(|&directory| directory >= 0)
    }

    fn how(&self) -> Confining {
        match self.how.load(Relaxed) {
            1 => Confining::Beneath,
            2 => Confining::InProc,
            3 => Confining::OpensNothing,
            _ => Confining::NotAgain,
        }
    }
}

/// Lets the calling thread open nothing but files of `/proc`.
fn open_within_proc() -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::openat(CWD, c"/proc", flags, Mode::empty())?;
    landlock::read_only_beneath(&[proc.as_fd()])
}

impl Engine {
    /// Prepares [`Engine::confine`], in a pager that has joined and may have so many descriptors.
    /// Handler, before there is an evictor.
    ///
    /// # Errors
    /// open(2)'s, for want of memory or of descriptors.
    pub(crate) fn prepare_confinement(&self, allowance: Allowance) -> Result<(), Errno> {
        // The first look at the clock asks the kernel where the clock's code is.
        sys::now_ns();
        let how = if self.has_filters_of_its_own() {
            Confining::NotAgain
        } else if landlock::look() == Landlock::Missing {
            self.descriptors.open_late_files(self.followed_program().shown);
            Confining::OpensNothing
        } else if allowance == Allowance::Handful {
            Confining::InProc
        } else {
            let confinement = &self.confinement;
            let shown =
                [(Shown::Own, &confinement.own), (self.followed_program().shown, &confinement.program)];
            for (shown, place) in shown {
                let opened = match shown.open_directory() {
                    Ok(opened) => opened.into_raw_fd(),
                    // There is none: the supervisor gave the files, and nothing is opened.
                    Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => -1,
                    Err(errno) => return Err(errno),
                };
                place.store(opened, Relaxed);
            }
            Confining::Beneath
        };
        self.confinement.how.store(how as u32, Relaxed);
        Ok(())
    }

    /// Gives up every right of the calling thread that it needs no more, for good. What the kernel
    /// refuses here stays: the pager would do its work as well. The second thread that calls this
    /// brings the filter for both, since the kernel takes some 100 microseconds to compile it.
    pub(crate) fn confine(&self) {
        if self.confinement.how() == Confining::InProc {
            // There may be too few descriptors for one of the threads: the other keeps its files.
            return self.confine_alone();
        }
        let Some(opening) = self.give_up_rights() else { return };
        let own = match opening {
            Opening::ForReading => ONE_THREAD,
            Opening::Never => ONE_THREAD + OPENS_NOTHING,
        };
        let all = self.confinement.waiting.fetch_add(own, AcqRel) + own;
        if all % OPENS_NOTHING < THREADS {
            return;
        }
        let opening = if all < OPENS_NOTHING { Opening::ForReading } else { Opening::Never };
        if filter::install(opening, Threads::All) == Err(Errno::SRCH) {
            let _ = filter::install(opening, Threads::Own);
        }
    }

    /// As [`Engine::confine`], for the calling thread alone.
    pub(crate) fn confine_alone(&self) {
        if let Some(opening) = self.give_up_rights() {
            let _ = filter::install(opening, Threads::Own);
        }
    }

    /// Gives up the calling thread's rights, and says what its filter is to allow; none where it
    /// gets no filter.
    fn give_up_rights(&self) -> Option<Opening> {
        rights::give_up();
        let opens_within = match self.confinement.how() {
            Confining::NotAgain => return None,
            Confining::OpensNothing => Err(Errno::NOSYS),
            Confining::InProc => open_within_proc(),
            Confining::Beneath => self.confinement.open_beneath(),
        };
        Some(opens_within.map_or(Opening::Never, |()| Opening::ForReading))
    }

    /// Whether the calling pager is under a filter that the supervisor is not under.
    fn has_filters_of_its_own(&self) -> bool {
        if !filter::is_filtered() {
            return false;
        }
        // The line stands behind all groups of the user.
        let mut text = [0; 16384];
        let status = descriptors::open(ProcFile::Status).and_then(|file| rustix::io::read(&file, &mut text));
        let count = status.ok().and_then(|length| field_number(&text[..length], b"Seccomp_filters:"));
        // Nobody knows where the pager sees no /proc.
        count.is_none_or(|count| count > u64::from(self.confinement.filters_at_start.load(Relaxed)))
    }
}

//! The descriptors of the pager threads, and the process's own files of `/proc`.

use crate::engine::Engine;
use crate::kernel::proc::Shown;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use folioswap_group::protocol::ProcFile;
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Descriptors in the table of the pager threads. -1: none.
#[repr(C)]
pub struct Descriptors {
    pub(crate) userfault: AtomicI32,
    pub(crate) maps: AtomicI32,
    pub(crate) pagemap: AtomicI32,
    pub(crate) statm: AtomicI32,
    pub(crate) control: AtomicI32,
    /// Files that are opened by name each time, since a program may allow itself only a handful of
    /// descriptors; where the process cannot open them, those that the supervisor gave it.
    smaps: AtomicI32,
    smaps_rollup: AtomicI32,
    stat: AtomicI32,
    status: AtomicI32,
}

impl Descriptors {
    pub(crate) fn forget(&self) {
        let Descriptors { userfault, maps, pagemap, statm, control, smaps, smaps_rollup, stat, status } =
            self;
        for descriptor in [userfault, maps, pagemap, statm, control, smaps, smaps_rollup, stat, status] {
            descriptor.store(-1, Relaxed);
        }
    }

    /// Opens the files that stay open. Returns the mask of those that the process may not open: the
    /// pagemap, if it has changed its user and its files are root's; all of them, if it sees
    /// another root directory.
    ///
    /// # Errors
    /// EMFILE, ENFILE, NOMEM: asking for them does not help.
    pub(crate) fn open_files(&self) -> Result<u64, Errno> {
        let mut mask = 0;
        for file in [ProcFile::Maps, ProcFile::Pagemap, ProcFile::Statm] {
            match open(file) {
                Ok(opened) => self.keep(file, opened.into_raw_fd()),
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
                Err(_) => mask |= file.bit(),
            }
        }
        if mask & ProcFile::Maps.bit() != 0 {
            for file in [ProcFile::Smaps, ProcFile::SmapsRollup, ProcFile::Stat, ProcFile::Status] {
                mask |= file.bit();
            }
        }
        Ok(mask)
    }

    /// Opens the files that are else opened each time, where the supervisor gave none, as far as
    /// there are descriptors; the program is shown there. Handler.
    pub(crate) fn open_late_files(&self, program: Shown) {
        for file in [ProcFile::Smaps, ProcFile::SmapsRollup, ProcFile::Stat, ProcFile::Status] {
            if self.of(file).load(Relaxed) < 0 {
                let opened = if file == ProcFile::Stat { program.open(b"stat") } else { open(file) };
                // What is missing costs figures; the process is managed without.
                opened.into_iter().for_each(|opened| self.keep(file, opened.into_raw_fd()));
            }
        }
    }

    /// Keeps the descriptor of a file that had none.
    pub(crate) fn keep(&self, file: ProcFile, descriptor: i32) {
        self.of(file).store(descriptor, Relaxed);
    }

    fn of(&self, file: ProcFile) -> &AtomicI32 {
        match file {
            ProcFile::Maps => &self.maps,
            ProcFile::Pagemap => &self.pagemap,
            ProcFile::Statm => &self.statm,
            ProcFile::Smaps => &self.smaps,
            ProcFile::SmapsRollup => &self.smaps_rollup,
            ProcFile::Stat => &self.stat,
            ProcFile::Status => &self.status,
        }
    }
}

/// Opens a file of the program's memory, which is the calling process's too, by its name.
///
/// # Errors
/// open(2)'s.
pub(crate) fn open(file: ProcFile) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, file.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

impl Engine {
    /// Reads the start of a file of this process, which is opened and closed where the supervisor
    /// gave none. Empty where there is no answer.
    pub(crate) fn read_file<'a>(&self, file: ProcFile, buffer: &'a mut [u8]) -> &'a [u8] {
        let read = self.with_file(file, |opened| rustix::io::pread(opened, &mut *buffer, 0));
        read.map_or(&[], |length| &buffer[..length])
    }

    /// Calls `body` with a file of this process: the one that the supervisor gave, or else one that
    /// is opened for this.
    ///
    /// # Errors
    /// Those of open(2) and of `body`.
    pub(crate) fn with_file<T>(
        &self,
        file: ProcFile,
        body: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self.descriptors.of(file).load(Relaxed) {
            // That file is of the program's process, all others are of its memory.
            -1 if file == ProcFile::Stat => body(self.followed_program().shown.open(b"stat")?.as_fd()),
            -1 => match self.confinement.own() {
                Some(directory) => body(Shown::By(directory).open(file.name().as_bytes())?.as_fd()),
                None => body(open(file)?.as_fd()),
            },
            // SAFETY: the descriptor is in the pager threads' table and stays open.
            given => body(unsafe { BorrowedFd::borrow_raw(given) }),
        }
    }
}

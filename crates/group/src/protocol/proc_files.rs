//! The files of `/proc` that a pager reads of its own process.

use core::ffi::CStr;

/// A file of `/proc` that a pager reads of its own process. A process that changed its user, root
/// directory or namespaces cannot open all of them any more, and asks the supervisor for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ProcFile {
    /// The list of mappings.
    Maps,
    /// The state of each page.
    Pagemap,
    /// The size of the process, in pages.
    Statm,
    /// The list of mappings, with figures and flags of each.
    Smaps,
    /// The sums of these figures.
    SmapsRollup,
    /// Times and faults of the process, on one line.
    Stat,
    /// What the process is, line by line.
    Status,
}

impl ProcFile {
    /// All of them, in the order in which a message carries them.
    pub const ALL: [ProcFile; 7] = [
        ProcFile::Maps,
        ProcFile::Pagemap,
        ProcFile::Statm,
        ProcFile::Smaps,
        ProcFile::SmapsRollup,
        ProcFile::Stat,
        ProcFile::Status,
    ];

    /// The bit of the file in a mask of files.
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }

    /// The files of a mask, in the order of [`ProcFile::ALL`]; bits of no file are left out.
    pub fn of_mask(mask: u64) -> impl Iterator<Item = ProcFile> {
        Self::ALL.into_iter().filter(move |file| mask & file.bit() != 0)
    }

    /// The path by which a pager thread opens its own. What tells of memory is asked of the pager's
    /// thread: a first thread that has ended has none, though the others go on. [`ProcFile::Stat`]
    /// is about all threads.
    pub const fn path(self) -> &'static CStr {
        match self {
            ProcFile::Maps => c"/proc/thread-self/maps",
            ProcFile::Pagemap => c"/proc/thread-self/pagemap",
            ProcFile::Statm => c"/proc/thread-self/statm",
            ProcFile::Smaps => c"/proc/thread-self/smaps",
            ProcFile::SmapsRollup => c"/proc/thread-self/smaps_rollup",
            ProcFile::Stat => c"/proc/self/stat",
            ProcFile::Status => c"/proc/thread-self/status",
        }
    }

    /// Its name in the directory of a thread, and in that of the process.
    pub fn name(self) -> &'static str {
        let path = self.path().to_str().unwrap_or_default();
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }
}

//! The resource limits that our own processes raise and CMD gets back: open files and the size of
//! files.

use folioswap_group::{decisions::Decisions, segment::Segment};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The descriptors that the front and a supervisor of a few members need.
const FILES_MIN: u64 = 32;

/// The largest file that a group has in memory.
const GROUP_BYTES: u64 =
    if Segment::BYTES > Decisions::BYTES { Segment::BYTES } else { Decisions::BYTES } as u64;
/// An upper bound on the size of the agent's memfd.
const AGENT_BYTES: u64 = 1 << 20;

/// Why nothing can be prepared within the limits of our caller.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// The number of open files is limited too much.
    #[error(
        "at most {found} open files are allowed here, and folioswap needs {needed}: raise the limit with `ulimit -n {needed}`"
    )]
    FewFiles {
        /// The hard limit of open files.
        found: u64,
        /// The number of files needed.
        needed: u64,
    },
    /// The size of files is limited too much.
    #[error(
        "files of at most {found} are allowed here, which is too small even for what folioswap keeps in memory: raise the limit with `ulimit -f`"
    )]
    SmallFiles {
        /// The hard limit, readable.
        found: String,
    },
}

/// The limits as our caller left them.
#[derive(Clone, Debug)]
pub struct Limits {
    files: Rlimit,
    file_size: Rlimit,
}

impl Limits {
    /// Reads the limits of this process.
    pub fn capture() -> Self {
        Limits { files: getrlimit(Resource::Nofile), file_size: getrlimit(Resource::Fsize) }
    }

    /// Raises the soft limits of this process to the hard ones. A write beyond the allowed size of
    /// a file becomes an error instead of a signal.
    ///
    /// # Errors
    /// When even the hard limits are too low to prepare anything.
    pub fn raise(&self) -> Result<(), LimitsError> {
        // SAFETY: a plain disposition; `Inherited` has the one that CMD gets.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        for (resource, limit) in [(Resource::Nofile, &self.files), (Resource::Fsize, &self.file_size)] {
            // Every process may raise a soft limit to the hard one.
            let _ = setrlimit(resource, Rlimit { current: limit.maximum, maximum: limit.maximum });
        }
        match (self.files.maximum, self.file_size.maximum) {
            (Some(files), _) if files < FILES_MIN => {
                Err(LimitsError::FewFiles { found: files, needed: FILES_MIN })
            }
            (_, Some(bytes)) if bytes < GROUP_BYTES + AGENT_BYTES => {
                Err(LimitsError::SmallFiles { found: crate::size::show(bytes) })
            }
            _ => Ok(()),
        }
    }

    /// The most bytes that CMD may write into a file. It bounds the swap file as well, into which
    /// CMD's process writes.
    pub fn file_bytes(&self) -> u64 {
        self.file_size.current.unwrap_or(u64::MAX)
    }

    /// The most files that a process of CMD may have open.
    pub fn files(&self) -> u64 {
        self.files.current.unwrap_or(u64::MAX)
    }

    /// Puts the limits back. Called in CMD's process before exec; async-signal-safe.
    pub fn restore(&self) {
        let _ = setrlimit(Resource::Nofile, self.files);
        let _ = setrlimit(Resource::Fsize, self.file_size);
    }
}

//! Resource limits that our own processes need otherwise than CMD has them: open files and the size of files.

use folioswap_group::segment::Segment;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the front and a supervisor of a few members need.
const FILES_MIN: u64 = 32;

/// More than the agent takes in its file in memory.
const AGENT_BYTES: u64 = 1 << 20;

/// Why nothing can be prepared within the limits of our caller.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// Too few descriptors are allowed.
    #[error(
        "at most {found} open files are allowed here, and folioswap needs {needed}: raise the limit with `ulimit -n {needed}`"
    )]
    FewFiles {
        /// The hard limit.
        found: u64,
        /// What is needed.
        needed: u64,
    },
    /// Too small files are allowed.
    #[error(
        "files of at most {found} are allowed here, which is too small even for what folioswap keeps in memory: raise the limit with `ulimit -f`"
    )]
    SmallFiles {
        /// The hard limit, readable.
        found: String,
    },
}

/// The limits, as our caller left them.
#[derive(Clone, Debug)]
pub struct Limits {
    files: Rlimit,
    file_size: Rlimit,
}

impl Limits {
    /// Reads them.
    pub fn capture() -> Self {
        Limits { files: getrlimit(Resource::Nofile), file_size: getrlimit(Resource::Fsize) }
    }

    /// Raises ours to what the system lets us have. A write beyond the size of files becomes an error instead of a signal.
    ///
    /// # Errors
    /// They are so low that nothing can be prepared.
    pub fn raise(&self) -> Result<(), LimitsError> {
        // SAFETY: a plain disposition; `Inherited` has what CMD gets.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        for (resource, limit) in [(Resource::Nofile, &self.files), (Resource::Fsize, &self.file_size)] {
            // Raising the soft limit to the hard one is allowed to everybody.
            let _ = setrlimit(resource, Rlimit { current: limit.maximum, maximum: limit.maximum });
        }
        match (self.files.maximum, self.file_size.maximum) {
            (Some(files), _) if files < FILES_MIN => {
                Err(LimitsError::FewFiles { found: files, needed: FILES_MIN })
            }
            (_, Some(bytes)) if bytes < Segment::BYTES as u64 + AGENT_BYTES => {
                Err(LimitsError::SmallFiles { found: crate::size::show(bytes) })
            }
            _ => Ok(()),
        }
    }

    /// The most bytes that CMD may write into a file, and with it the swap file: who writes there is CMD.
    pub fn file_bytes(&self) -> u64 {
        self.file_size.current.unwrap_or(u64::MAX)
    }

    /// The most files that a process of CMD may have open.
    pub fn files(&self) -> u64 {
        self.files.current.unwrap_or(u64::MAX)
    }

    /// Makes everything as it was. In CMD's process, before exec; async-signal-safe.
    pub fn restore(&self) {
        let _ = setrlimit(Resource::Nofile, self.files);
        let _ = setrlimit(Resource::Fsize, self.file_size);
    }
}

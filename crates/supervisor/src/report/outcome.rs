//! The outcome of a run.

use std::fmt::{self, Display, Formatter};

/// The exit status when nothing is left to swap to, as after an OOM kill.
const STATUS_OUT_OF_MEMORY: i32 = 137;

/// How CMD, or the whole group, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// CMD exited with this status.
    Exited(i32),
    /// This signal ended CMD.
    Signalled(i32),
    /// The group was ended because every device was full.
    OutOfSwap,
    /// The group was ended because memory that cannot be swapped out was above the limit on its
    /// own.
    UnmanagedAboveLimit,
    /// The group was ended because a pager could not go on.
    PagerFailed,
    /// The group was ended because it did little but wait for pages, and that was asked for.
    Thrashed,
}

impl Outcome {
    /// The outcome for a status of wait(2); `None` when the process only stopped.
    pub fn from_wait(status: i32) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Outcome::Exited(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Outcome::Signalled(libc::WTERMSIG(status)))
        } else {
            None
        }
    }

    /// The exit status of `run`.
    pub fn status(self) -> i32 {
        match self {
            Outcome::Exited(status) => status,
            Outcome::Signalled(signal) => 128 + signal,
            Outcome::OutOfSwap | Outcome::UnmanagedAboveLimit | Outcome::PagerFailed | Outcome::Thrashed => {
                STATUS_OUT_OF_MEMORY
            }
        }
    }

    /// The signal that ended CMD, when CMD ended by itself.
    pub fn signal(self) -> Option<i32> {
        match self {
            Outcome::Signalled(signal) => Some(signal),
            _ => None,
        }
    }

    /// The value of `"end"` in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Exited(_) => "exited",
            Outcome::Signalled(_) => "signalled",
            Outcome::OutOfSwap => "out_of_swap",
            Outcome::UnmanagedAboveLimit => "unmanaged_above_limit",
            Outcome::PagerFailed => "pager_failed",
            Outcome::Thrashed => "thrashed",
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Exited(status) => write!(f, "CMD exited with status {status}"),
            Outcome::Signalled(signal) => write!(f, "CMD was ended by signal {signal}"),
            Outcome::OutOfSwap => write!(f, "ended, since nothing was left to swap to"),
            Outcome::UnmanagedAboveLimit => {
                write!(f, "ended, since what cannot be swapped was above the limit")
            }
            Outcome::PagerFailed => write!(f, "ended, since a pager failed"),
            Outcome::Thrashed => write!(f, "ended, since it did little but wait for pages"),
        }
    }
}

#[cfg(test)]
mod tests;

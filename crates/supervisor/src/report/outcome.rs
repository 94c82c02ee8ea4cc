//! How a run ended.

use std::fmt::{self, Display, Formatter};

/// Exit status when nothing is left to swap to, as for an OOM kill.
const STATUS_OUT_OF_MEMORY: i32 = 137;

/// How CMD, or the whole group, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// CMD exited with this status.
    Exited(i32),
    /// This signal ended CMD.
    Signalled(i32),
    /// Every device was full.
    OutOfSwap,
    /// What cannot be managed is alone above the limit.
    UnmanagedAboveLimit,
    /// A pager could not go on.
    PagerFailed,
}

impl Outcome {
    /// From the status of wait(2); `None` when the process only stopped.
    pub fn from_wait(status: i32) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Outcome::Exited(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Outcome::Signalled(libc::WTERMSIG(status)))
        } else {
            None
        }
    }

    /// The status that `run` exits with.
    pub fn status(self) -> i32 {
        match self {
            Outcome::Exited(status) => status,
            Outcome::Signalled(signal) => 128 + signal,
            Outcome::OutOfSwap | Outcome::UnmanagedAboveLimit | Outcome::PagerFailed => STATUS_OUT_OF_MEMORY,
        }
    }

    /// The signal that ended CMD by itself.
    pub fn signal(self) -> Option<i32> {
        match self {
            Outcome::Signalled(signal) => Some(signal),
            _ => None,
        }
    }

    /// `"end"` in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Exited(_) => "exited",
            Outcome::Signalled(_) => "signalled",
            Outcome::OutOfSwap => "out_of_swap",
            Outcome::UnmanagedAboveLimit => "unmanaged_above_limit",
            Outcome::PagerFailed => "pager_failed",
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(Outcome::from_wait(3 << 8), Some(Outcome::Exited(3)));
        assert_eq!(Outcome::from_wait(9).map(Outcome::status), Some(137));
        assert_eq!(Outcome::from_wait(0x137f), None, "stopped");
    }
}

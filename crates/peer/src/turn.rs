//! The right to change the machine's swap.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Runs that let the kernel swap take turns on the whole machine: they would share their devices.
const LOCK: &str = "/run/folioswap-acc.lock";
/// Between two questions whether to go on waiting.
const INTERVAL: Duration = Duration::from_millis(100);

/// The right to change the machine's swap; given back on drop.
pub struct Turn {
    // The lock lasts as long as the descriptor.
    _locked: File,
}

impl Turn {
    /// Waits for it, until `interrupted` answers that it was waited for in vain.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] when `interrupted` said so; else those of the lock file, which only root may write.
    pub fn take(interrupted: impl Fn() -> bool) -> io::Result<Turn> {
        let file = File::create(LOCK)?;
        loop {
            // SAFETY: flock has no memory effects; the descriptor is ours.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Turn { _locked: file });
            }
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EWOULDBLOCK | libc::EINTR)) {
                return Err(error);
            }
            if interrupted() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Removes the devices of runs that were killed, and puts settings back that they changed.
    pub fn remove_stale(&self) {
        crate::huge::restore_stale();
        crate::zram::remove_stale();
    }
}

//! The lock that whoever changes the machine's swap must hold.

use std::fs::{File, TryLockError};
use std::io;
use std::time::Duration;

/// One lock file for the whole machine: two runs under the kernel's swap would share their devices.
const LOCK: &str = "/run/folioswap-acc.lock";
/// Time between two attempts, each followed by the question whether to give up.
const INTERVAL: Duration = Duration::from_millis(100);

/// The right to change the machine's swap, released on drop.
pub struct SwapLock {
    // The lock lasts as long as the descriptor.
    _locked: File,
}

impl SwapLock {
    /// Waits for the lock until `interrupted` returns true.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] when `interrupted` returned true; else the error of the lock
    /// file, which only root may write.
    pub fn take(interrupted: impl Fn() -> bool) -> io::Result<SwapLock> {
        let file = File::create(LOCK)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(SwapLock { _locked: file }),
                Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error);
                }
                Err(_) => {}
            }
            if interrupted() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Removes the devices of killed runs and restores the settings that they changed.
    pub fn remove_stale(&self) {
        crate::huge::restore_stale();
        crate::zram::remove_stale();
    }
}

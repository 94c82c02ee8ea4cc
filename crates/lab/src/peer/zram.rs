//! zram devices as the machine's swap.

use super::PeerError;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs that let the kernel swap take turns on the whole machine.
const LOCK: &str = "/run/folioswap-acc.lock";
/// Which devices a process made, so that a killed one's are removed by the next.
const NOTES: &str = "/run/folioswap-lab";
const SWAP_FLAG_PREFER: i32 = 0x8000;

/// The right to change the machine's swap.
pub(super) struct Turn {
    // The lock lasts as long as the descriptor.
    _locked: File,
}

impl Turn {
    /// Waits for it; `check` may end the waiting.
    pub(super) fn take(check: &dyn Fn() -> Result<(), PeerError>) -> Result<Turn, PeerError> {
        let file = File::create(LOCK).map_err(super::step("the lock file"))?;
        loop {
            // SAFETY: flock has no memory effects; the descriptor is ours.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Turn { _locked: file });
            }
            check()?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Removes what a killed run left behind. Context: our turn, so no other run is alive.
    pub(super) fn remove_stale(&self) {
        super::cgroup::remove_stale();
        let Ok(entries) = fs::read_dir(NOTES) else { return };
        for entry in entries.flatten() {
            if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                tear_down(number);
            }
        }
    }
}

/// A device in use as swap; given back on drop.
pub(super) struct Zram {
    number: u32,
}

impl Zram {
    pub(super) fn new(bytes: u64, priority: Option<i16>) -> io::Result<Zram> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add")?;
        let number: u32 = number.trim().parse().map_err(io::Error::other)?;
        let device = Zram { number };
        fs::create_dir_all(NOTES)?;
        fs::write(Path::new(NOTES).join(number.to_string()), "")?;
        fs::write(sys(number, "disksize"), bytes.to_string())?;
        make_swap(&OpenOptions::new().write(true).open(device.name())?, bytes)?;
        let name = CString::new(device.name()).map_err(io::Error::other)?;
        let flags = priority.map_or(0, |priority| SWAP_FLAG_PREFER | i32::from(priority));
        // SAFETY: a valid C string.
        if unsafe { libc::swapon(name.as_ptr(), flags) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(device)
    }

    /// As in /proc/swaps.
    pub(super) fn name(&self) -> String {
        format!("/dev/zram{}", self.number)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        tear_down(self.number);
    }
}

fn sys(number: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/zram{number}/{file}"))
}

fn tear_down(number: u32) {
    if let Ok(name) = CString::new(format!("/dev/zram{number}")) {
        // SAFETY: a valid C string. Fails harmlessly when it was not switched on.
        unsafe { libc::swapoff(name.as_ptr()) };
    }
    for _ in 0..100 {
        if !sys(number, "reset").exists() || fs::write(sys(number, "reset"), "1").is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(fs::write("/sys/class/zram-control/hot_remove", number.to_string()));
    drop(fs::remove_file(Path::new(NOTES).join(number.to_string())));
    drop(fs::remove_dir(NOTES));
}

/// What mkswap(8) writes: version 1, the last page, the signature.
fn make_swap(file: &File, bytes: u64) -> io::Result<()> {
    let mut header = [0u8; 4096];
    header[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&((bytes / 4096 - 1) as u32).to_ne_bytes());
    header[4086..4096].copy_from_slice(b"SWAPSPACE2");
    file.write_all_at(&header, 0)?;
    file.sync_all()
}

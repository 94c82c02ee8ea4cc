//! A zram device as the machine's swap. Given back on drop, also while unwinding.

use crate::Turn;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The highest priority that swapon(2) takes: nothing goes to other swap that may be there.
pub const HIGHEST_PRIORITY: u16 = 0x7fff;

/// swapon(2): the low bits are a priority.
const SWAP_FLAG_PREFER: i32 = 0x8000;
/// Where the devices that a process made are noted, so that a killed one's devices are removed by the next.
const NOTES: &str = "/run/folioswap-peer";

/// A zram device in use as swap.
pub struct Zram {
    number: u32,
    added: bool,
    // Dropped last.
    _turn: Arc<Turn>,
}

impl Zram {
    /// Sets one up and switches swapping to it on. `bytes`: its size; `priority`: as of swapon(2), at most [`HIGHEST_PRIORITY`], or the kernel's
    /// default; `algorithm`: as in `/sys/block/zram*/comp_algorithm`, or the kernel's default. Call [`Turn::remove_stale`] before.
    ///
    /// # Errors
    /// When the kernel has no zram or we may not.
    pub fn new(
        turn: &Arc<Turn>,
        bytes: u64,
        priority: Option<u16>,
        algorithm: Option<&str>,
    ) -> io::Result<Self> {
        let free = fs::read_to_string("/sys/class/zram-control/hot_add");
        let (number, added) = match free {
            Ok(number) => (number.trim().parse().map_err(io::Error::other)?, true),
            Err(error) => {
                let size = fs::read_to_string("/sys/block/zram0/disksize").map_err(|_| error)?;
                if size.trim() != "0" {
                    return Err(io::Error::other("zram0 is in use and no other can be had"));
                }
                (0, false)
            }
        };
        let device = Zram { number, added, _turn: Arc::clone(turn) };
        fs::create_dir_all(NOTES)?;
        fs::write(note(number), format!("{} {}", std::process::id(), u8::from(added)))?;
        if let Some(algorithm) = algorithm {
            fs::write(device.sys("comp_algorithm"), algorithm)?;
        }
        fs::write(device.sys("disksize"), bytes.to_string())?;
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(device.name())
            .and_then(|file| make_swap(&file, bytes))?;
        let name = CString::new(device.name()).map_err(io::Error::other)?;
        let flags = priority.map_or(0, |priority| SWAP_FLAG_PREFER | i32::from(priority));
        // SAFETY: a valid C string.
        if unsafe { libc::swapon(name.as_ptr(), flags) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(device)
    }

    /// As in /proc/swaps.
    pub fn name(&self) -> String {
        format!("/dev/zram{}", self.number)
    }

    fn sys(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{file}", self.number))
    }

    /// The first three figures of mm_stat: original, compressed and occupied bytes.
    pub fn sizes(&self) -> [u64; 3] {
        let text = fs::read_to_string(self.sys("mm_stat")).unwrap_or_default();
        let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        [(); 3].map(|()| words.next().unwrap_or(0))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        tear_down(self.number, self.added);
    }
}

fn note(number: u32) -> PathBuf {
    PathBuf::from(NOTES).join(format!("zram{number}"))
}

fn tear_down(number: u32, added: bool) {
    if let Ok(name) = CString::new(format!("/dev/zram{number}")) {
        // SAFETY: a valid C string. Fails harmlessly when it was not switched on.
        unsafe { libc::swapoff(name.as_ptr()) };
    }
    for _ in 0..100 {
        let reset = PathBuf::from(format!("/sys/block/zram{number}/reset"));
        if !reset.exists() || fs::write(reset, "1").is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if added {
        drop(fs::write("/sys/class/zram-control/hot_remove", number.to_string()));
    }
    drop(fs::remove_file(note(number)));
    drop(fs::remove_dir(NOTES));
}

pub(crate) fn remove_stale() {
    let Ok(entries) = fs::read_dir(NOTES) else { return };
    for entry in entries.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("zram")?.parse().ok());
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let (Some(number), Some((pid, added))) = (number, text.split_once(' ')) else { continue };
        if !PathBuf::from("/proc").join(pid).exists() {
            tear_down(number, added.trim() == "1");
        }
    }
}

/// What mkswap(8) writes: version 1, the last page, the signature.
fn make_swap(file: &fs::File, bytes: u64) -> io::Result<()> {
    let mut header = [0u8; 4096];
    header[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&((bytes / 4096 - 1) as u32).to_ne_bytes());
    header[4086..4096].copy_from_slice(b"SWAPSPACE2");
    file.write_all_at(&header, 0)?;
    file.sync_all()
}

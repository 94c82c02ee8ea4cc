//! A zram device as the machine's swap, removed on drop, also while unwinding.

use crate::SwapLock;
use folioswap_devices::PAGE_SIZE;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The highest priority that swapon(2) takes: with it, other swap of the machine is not used.
pub const HIGHEST_PRIORITY: u16 = 0x7fff;

/// Flag of swapon(2): the low bits are a priority.
const SWAP_FLAG_PREFER: i32 = 0x8000;
/// Directory with a note per device, so that the devices of a killed process are removed by the
/// next.
const NOTES: &str = "/run/folioswap-peer";

/// The origin of a device, which decides whether it is removed at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Made with `hot_add`; removed again.
    Added,
    /// Already there and unused; only reset.
    Present,
}

impl Origin {
    const fn noted(self) -> u8 {
        match self {
            Origin::Added => 1,
            Origin::Present => 0,
        }
    }

    fn of_note(text: &str) -> Origin {
        if text.trim() == "1" { Origin::Added } else { Origin::Present }
    }
}

/// A zram device in use as swap.
pub struct Zram {
    number: u32,
    origin: Origin,
    // Dropped last.
    _lock: Arc<SwapLock>,
}

impl Zram {
    /// Sets up a device of `bytes` bytes and switches swapping to it on. `priority` is that of
    /// swapon(2), at most [`HIGHEST_PRIORITY`]; `algorithm` is a name from
    /// `/sys/block/zram*/comp_algorithm`; `None` leaves either to the kernel. Call
    /// [`SwapLock::remove_stale`] before.
    ///
    /// # Errors
    /// The kernel has no zram, or no permission.
    pub fn new(
        lock: &Arc<SwapLock>,
        bytes: u64,
        priority: Option<u16>,
        algorithm: Option<&str>,
    ) -> io::Result<Self> {
        let free = fs::read_to_string("/sys/class/zram-control/hot_add");
        let (number, origin) = match free {
            Ok(number) => (number.trim().parse().map_err(io::Error::other)?, Origin::Added),
            Err(error) => {
                let size = fs::read_to_string("/sys/block/zram0/disksize").map_err(|_| error)?;
                if size.trim() != "0" {
                    return Err(io::Error::other("zram0 is in use and no other can be had"));
                }
                (0, Origin::Present)
            }
        };
        let device = Zram { number, origin, _lock: Arc::clone(lock) };
        fs::create_dir_all(NOTES)?;
        fs::write(note(number), format!("{} {}", std::process::id(), origin.noted()))?;
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
        // SAFETY: the name is a valid C string.
        if unsafe { libc::swapon(name.as_ptr(), flags) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(device)
    }

    /// The device's name in `/proc/swaps`.
    pub fn name(&self) -> String {
        format!("/dev/zram{}", self.number)
    }

    fn sys(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{file}", self.number))
    }

    /// The first three figures of `mm_stat`: original, compressed and occupied bytes.
    pub fn sizes(&self) -> [u64; 3] {
        let text = fs::read_to_string(self.sys("mm_stat")).unwrap_or_default();
        let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        [(); 3].map(|()| words.next().unwrap_or(0))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        tear_down(self.number, self.origin);
    }
}

fn note(number: u32) -> PathBuf {
    PathBuf::from(NOTES).join(format!("zram{number}"))
}

fn tear_down(number: u32, origin: Origin) {
    if let Ok(name) = CString::new(format!("/dev/zram{number}")) {
        // SAFETY: the name is a valid C string. The call fails harmlessly when the device is not in
        // use as swap.
        unsafe { libc::swapoff(name.as_ptr()) };
    }
    for _ in 0..100 {
        let reset = PathBuf::from(format!("/sys/block/zram{number}/reset"));
        if !reset.exists() || fs::write(reset, "1").is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if origin == Origin::Added {
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
        let (Some(number), Some((pid, origin))) = (number, text.split_once(' ')) else { continue };
        if !PathBuf::from("/proc").join(pid).exists() {
            tear_down(number, Origin::of_note(origin));
        }
    }
}

/// Writes the header that mkswap(8) writes: version 1, number of the last page, signature.
fn make_swap(file: &fs::File, bytes: u64) -> io::Result<()> {
    let mut header = [0u8; PAGE_SIZE];
    header[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&((bytes / PAGE_SIZE as u64 - 1) as u32).to_ne_bytes());
    header[PAGE_SIZE - 10..].copy_from_slice(b"SWAPSPACE2");
    file.write_all_at(&header, 0)?;
    file.sync_all()
}

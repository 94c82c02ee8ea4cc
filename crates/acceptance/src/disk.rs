//! Disks for tests that break them: files under loop devices, and small file systems. Each is
//! removed on drop. They need root, losetup(8) and mkfs.ext4(8).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A new path in /var/tmp for one test. The file or empty directory there is removed on drop.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Chooses a path at which nothing exists yet.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        Scratch(PathBuf::from(format!("/var/tmp/spoilt-disk-{}-{number}-{name}", std::process::id())))
    }

    /// Creates a sparse file of `bytes` zero bytes.
    ///
    /// # Panics
    /// When the file cannot be created.
    pub fn file(name: &str, bytes: u64) -> Self {
        let scratch = Self::new(name);
        File::create_new(&scratch.0).and_then(|file| file.set_len(bytes)).expect("a file in /var/tmp");
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir(&self.0);
    }
}

/// A directory in /var/tmp for the swap files of one test, removed on drop with its contents.
#[derive(Debug)]
pub struct Directory(pub PathBuf);

impl Directory {
    /// Creates the directory.
    ///
    /// # Panics
    /// When the directory cannot be created.
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-swap-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device over a file.
#[derive(Debug)]
pub struct LoopDevice {
    /// `/dev/loopN`.
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches a loop device to this file, with direct I/O, so that nothing stays in the page
    /// cache.
    ///
    /// # Errors
    /// The message of losetup(8).
    pub fn new(backing: &Path) -> Result<Self, String> {
        let made = run(Command::new("losetup").args(["--direct-io=on", "--find", "--show"]).arg(backing))?;
        Ok(LoopDevice { path: made.into() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.path));
    }
}

/// A mounted ext4 file system in a file.
#[derive(Debug)]
pub struct FileSystem {
    /// Where it is mounted.
    pub point: Scratch,
    device: Option<LoopDevice>,
    _image: Scratch,
}

/// `EXT4_IOC_SHUTDOWN`: `_IOR('X', 125, __u32)`. The argument 2 (`EXT4_GOING_FLAGS_NOLOGFLUSH`)
/// discards what was not written out.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;

impl FileSystem {
    /// Creates and mounts a file system of `bytes` bytes.
    ///
    /// # Errors
    /// The message of the command that failed.
    pub fn new(bytes: u64) -> Result<Self, String> {
        let image = Scratch::file("image", bytes);
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-O", "^has_journal"]).arg(&image.0))?;
        let device = LoopDevice::new(&image.0)?;
        let point = Scratch::new("mounted");
        fs::create_dir(&point.0).map_err(|error| error.to_string())?;
        run(Command::new("mount").arg(&device.path).arg(&point.0))?;
        Ok(FileSystem { point, device: Some(device), _image: image })
    }

    /// Unmounts it. This fails while a file of it is open.
    ///
    /// # Errors
    /// Those of umount(2).
    pub fn unmount(&self) -> io::Result<()> {
        let path = std::ffi::CString::new(self.point.0.as_os_str().as_encoded_bytes())?;
        // SAFETY: the path is a C string.
        match unsafe { libc::umount2(path.as_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes every later read and write of its files fail with EIO, as if its disk had been pulled
    /// out.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn shut_down(&self) -> io::Result<()> {
        let root = File::open(&self.point.0)?;
        let how: u32 = 2;
        // SAFETY: reads one 32-bit word.
        match unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const how) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.point.0));
        drop(self.device.take());
    }
}

//! A block device for tests: a loop device over a file, both removed on drop. Needs root and
//! losetup(8).

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags, open};

/// A new file in /var/tmp, removed on drop.
pub struct TestFile(pub PathBuf);

impl TestFile {
    /// A file of this many zero bytes, without blocks.
    pub fn new(bytes: u64) -> Self {
        Self::at(Path::new("/var/tmp"), bytes)
    }

    /// The same file in another directory.
    pub fn at(directory: &Path, bytes: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("folioswap-devices-{}-{number}", std::process::id()));
        File::create_new(&path).unwrap().set_len(bytes).unwrap();
        Self(path)
    }

    /// Opens the file as devices are opened, with direct I/O.
    pub fn direct(&self) -> OwnedFd {
        direct(&self.0)
    }

    pub fn truncate(&self, bytes: u64) {
        File::options().write(true).open(&self.0).unwrap().set_len(bytes).unwrap();
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn direct(path: &Path) -> OwnedFd {
    open(path, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// A loop device and the file under it.
pub struct LoopDevice {
    pub path: PathBuf,
    pub backing: TestFile,
}

impl LoopDevice {
    /// `None`, and a note that the test is skipped, where no loop device can be had.
    pub fn new(bytes: u64) -> Option<Self> {
        let backing = TestFile::new(bytes);
        let made =
            Command::new("losetup").args(["--direct-io=on", "--find", "--show"]).arg(&backing.0).output();
        let path = match made {
            Ok(output) if output.status.success() => {
                PathBuf::from(String::from_utf8(output.stdout).unwrap().trim().to_owned())
            }
            Ok(output) => return skip(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => return skip(&error.to_string()),
        };
        Some(Self { path, backing })
    }

    pub fn direct(&self) -> OwnedFd {
        direct(&self.path)
    }

    /// Makes the device take the current size of the file under it.
    pub fn take_size(&self) {
        assert!(Command::new("losetup").arg("--set-capacity").arg(&self.path).status().unwrap().success());
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// The note is counted by `scripts/test.sh`.
fn skip<T>(why: &str) -> Option<T> {
    use std::io::Write;
    let line =
        format!("NOTE {}: no loop device: {}", std::thread::current().name().unwrap_or("?"), why.trim());
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("FOLIOSWAP_SKIP_FILE") {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
    None
}

//! A mount of folioswap for one test, unmounted when the test ends, however it ends.

use crate::programs;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that mounting, unmounting or the daemon's end may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A mount, served by a child process in the foreground.
pub struct Mount {
    path: PathBuf,
    daemon: Child,
}

/// The reason why this process cannot mount FUSE file systems, or `None` if it can.
pub fn missing() -> Option<String> {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("mounting takes root".to_owned());
    }
    let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    fuse.err().map(|error| format!("/dev/fuse: {error}"))
}

/// Makes a command enter a cgroup before it runs. `entrance` is the cgroup's `cgroup.procs`.
pub fn enter(command: &mut Command, entrance: &Path) {
    let entrance = CString::new(entrance.as_os_str().as_bytes()).expect("a path");
    let enter = move || {
        // SAFETY: plain system calls between fork and exec; the path is a C string and the byte
        // lives on the stack.
        unsafe {
            let file = libc::open(entrance.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if file < 0 || libc::write(file, b"0".as_ptr().cast(), 1) != 1 {
                return Err(io::Error::last_os_error());
            }
            libc::close(file);
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(enter) };
}

impl Mount {
    /// Mounts in a new directory; `words` are further arguments of `folioswap mount`.
    ///
    /// # Panics
    /// When the mount is not there within 20 s.
    pub fn new(name: &str, words: &[&str]) -> Self {
        Self::start(name, words, None)
    }

    /// Mounts as [`Mount::new`] does, with the daemon in a cgroup.
    pub fn within(name: &str, words: &[&str], entrance: &Path) -> Self {
        Self::start(name, words, Some(entrance))
    }

    fn start(name: &str, words: &[&str], entrance: Option<&Path>) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-mount-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let mut command = Command::new(programs::folioswap());
        command.arg("mount").arg(&path).arg("--foreground").args(words).stdin(Stdio::null());
        if let Some(entrance) = entrance {
            enter(&mut command, entrance);
        }
        let daemon = command.spawn().expect("folioswap can be run");
        let mut mount = Mount { path, daemon };
        let start = Instant::now();
        while !mount.is_mounted() {
            if let Some(status) = mount.daemon.try_wait().expect("wait") {
                panic!("folioswap mount ended: {status}");
            }
            assert!(start.elapsed() < PATIENCE, "not mounted after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        mount
    }

    /// The directory where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the mount.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The daemon's process.
    pub fn daemon(&self) -> i32 {
        self.daemon.id() as i32
    }

    /// Whether the mount is there. The kernel's table is asked, not the daemon.
    pub fn is_mounted(&self) -> bool {
        let text = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        let point = self.path.to_str().expect("UTF-8");
        text.lines().any(|line| line.split(' ').nth(4) == Some(point) && line.contains(" folioswap "))
    }

    /// The daemon's statistics by name, from its extended attribute `folioswap.stats`.
    pub fn figures(&self) -> HashMap<String, u64> {
        let path = CString::new(self.path.as_os_str().as_bytes()).expect("a path");
        let mut text = vec![0_u8; 64 << 10];
        // SAFETY: both names are C strings, and the buffer is as long as said.
        let length = unsafe {
            libc::getxattr(path.as_ptr(), c"folioswap.stats".as_ptr(), text.as_mut_ptr().cast(), text.len())
        };
        assert!(length > 0, "figures: {}", io::Error::last_os_error());
        let text = String::from_utf8_lossy(&text[..length as usize]).into_owned();
        let row = |line: &str| {
            line.split_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        };
        text.lines().filter_map(row).collect()
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill has no memory effects; the daemon is our child and was not waited for.
        unsafe { libc::kill(self.daemon(), signal) };
    }

    /// Waits for the daemon's end.
    ///
    /// # Panics
    /// When the daemon does not end within 20 s.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.daemon.try_wait().expect("wait") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the daemon did not end after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A daemon that was waited for has no process number any more: the number may be another's
        // by now.
        if matches!(self.daemon.try_wait(), Ok(None)) {
            self.signal(libc::SIGTERM);
        }
        let start = Instant::now();
        while matches!(self.daemon.try_wait(), Ok(None)) && start.elapsed() < PATIENCE / 4 {
            std::thread::sleep(Duration::from_millis(5));
        }
        if matches!(self.daemon.try_wait(), Ok(None)) {
            drop(self.daemon.kill());
        }
        drop(self.daemon.wait());
        let path = CString::new(self.path.as_os_str().as_bytes()).expect("a path");
        while self.is_mounted() {
            // SAFETY: a C string.
            if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } != 0 {
                break;
            }
        }
        drop(fs::remove_dir(&self.path));
    }
}

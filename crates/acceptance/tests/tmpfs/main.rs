//! `folioswap mount` behaves as a tmpfs, keeps its limit, and ends as it should.

use folioswap_acceptance::{mount, mount::Mount, skip};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::Command;

/// Seconds of the random operations in all, by default.
const SECONDS: u64 = 60;
const RANDOM_OPERATIONS: &str = env!("CARGO_BIN_EXE_acc-tmpfs");

macro_rules! needs_fuse {
    () => {
        if let Some(reason) = mount::missing() {
            skip!("{reason}");
        }
    };
}

/// The error of a system call that must fail.
#[track_caller]
fn error<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.raw_os_error().expect("of a system call"),
    }
}

fn rename2(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let path = |path: &Path| std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("a path");
    let (from, to) = (path(from), path(to));
    // SAFETY: both are C strings.
    match unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn new_file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("a new file")
}

mod acl;
mod beginning_and_end;
mod files;
mod limits;
mod past;

/// Several processes against an oracle, with contents far above the limit, for two minutes.
/// `FOLIOSWAP_TMPFS_SECONDS=3600` is the long form.
#[test]
fn random_operations_of_several_processes() {
    needs_fuse!();
    let seconds =
        std::env::var("FOLIOSWAP_TMPFS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    // The long form takes another seed each time, and names it.
    let seed = if seconds > SECONDS { std::process::id() } else { 1 };
    for (name, huge, more) in
        [("never", "never", None), ("always", "always", None), ("direct", "within_size", Some("--direct"))]
    {
        let mut words = vec!["--memory", "32M", "--size", "2G", "--huge", huge];
        words.extend(more);
        let mount = Mount::new(&format!("random-{name}"), &words);
        let numbers = [seconds / 3 + 1, u64::from(seed), 12 << 20].map(|number| number.to_string());
        let output = Command::new(RANDOM_OPERATIONS)
            .arg(mount.path())
            .args(["--seconds", &numbers[0], "--seed", &numbers[1], "--size", &numbers[2]])
            .output()
            .expect("acc-tmpfs");
        let text = String::from_utf8_lossy(&output.stderr);
        println!("{name}: {} {:?}", String::from_utf8_lossy(&output.stdout), mount.figures());
        assert!(output.status.success(), "seed {seed}: {text}");
    }
}

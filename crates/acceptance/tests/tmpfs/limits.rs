//! The limits of memory, size and inodes hold.

use crate::{RANDOM_OPERATIONS, error, new_file, rename2};
use folioswap_acceptance::{MIB, mount, mount::Mount, skip};
use folioswap_peer::{Cgroup, controller};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[test]
fn inodes_are_limited_and_none_is_left_behind() {
    needs_fuse!();
    let mount =
        Mount::new("inodes", &["--memory", "64M", "--size", "64M", "--inodes", "500", "--swap-max", "0"]);
    let made = (0..).find(|number| match File::create_new(mount.file(&format!("{number}"))) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            true
        }
    });
    assert_eq!(made, Some(499), "and the root");
    // A rename that leaves a whiteout happens completely or not at all.
    assert_eq!(error(rename2(&mount.file("1"), &mount.file("x"), libc::RENAME_WHITEOUT)), libc::ENOSPC);
    assert!(mount.file("1").is_file() && !mount.file("x").exists());
    for number in 0..499 {
        fs::remove_file(mount.file(&format!("{number}"))).expect("unlink");
    }
    fs::create_dir_all(mount.file("a/b/c")).expect("mkdir");
    fs::remove_dir_all(mount.file("a")).expect("rmdir");
    // The kernel reports soon which inodes it has forgotten.
    let start = Instant::now();
    while mount.figures()["inodes"] > 1 || mount.figures()["inodes_known"] > 1 {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", mount.figures());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(mount.figures()["content"], 0);
}

/// Links, their names, attributes and link targets count towards the limit, and are refused when it
/// is full. Existing ones can be removed then.
#[test]
fn names_and_attributes_keep_the_limit() {
    needs_fuse!();
    let mount = Mount::new("names", &["--memory", "32M", "--swap-max", "0"]);
    let limit = mount.figures()["memory_limit"];
    let file = new_file(&mount.file("file"));
    let empty = mount.figures()["metadata"];
    let value = vec![7_u8; 60_000];
    let set = |number: u64| {
        let name = std::ffi::CString::new(format!("user.{number}")).expect("a name");
        // SAFETY: a C string, and as many bytes as said.
        match unsafe {
            libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let attributes = (0..).find(|&number| match set(number) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            true
        }
    });
    let attributes = attributes.expect("an end");
    let figures = mount.figures();
    assert!(attributes * 60_000 <= limit && figures["memory_used"] <= limit, "{attributes}: {figures:?}");
    assert!(attributes * 60_000 > limit / 2, "{attributes}: {figures:?}");
    // Small pieces fill the rest, until no name has room.
    let name = |number: u64| mount.file(&format!("{number:0>200}"));
    let links = (0..200_000).find(|&number| fs::hard_link(mount.file("file"), name(number)).is_err());
    let links = links.expect("an end");
    assert!(links < 200, "{links} links where no attribute had room");
    assert_eq!(error(fs::hard_link(mount.file("file"), name(links))), libc::ENOSPC);
    assert_eq!(error(symlink("x".repeat(4000), mount.file("symlink"))), libc::ENOSPC);
    assert_eq!(error(fs::create_dir(mount.file("directory"))), libc::ENOSPC);
    fs::rename(mount.file("file"), mount.file("same")).expect("a rename needs no room");
    for number in 0..links {
        fs::remove_file(name(number)).expect("unlink");
    }
    for number in 0..attributes {
        let name = std::ffi::CString::new(format!("user.{number}")).expect("a name");
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) }, 0);
    }
    symlink("x".repeat(4000), mount.file("symlink")).expect("there is room again");
    fs::remove_file(mount.file("symlink")).expect("unlink");
    let start = Instant::now();
    while mount.figures()["metadata"] != empty {
        assert!(start.elapsed() < Duration::from_secs(5), "{empty}: {:?}", mount.figures());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Daemon and page cache are in a cgroup with the processes that read and write; the contents are
/// four times the limit.
#[test]
fn the_limit_holds() {
    needs_fuse!();
    if controller().is_none() {
        skip!("no memory cgroup controller");
    }
    const LIMIT: u64 = 64 * MIB;
    for huge in ["never", "always"] {
        let group = Cgroup::new("folioswap-acc-", None).expect("a cgroup");
        let mount = Mount::within(
            &format!("limit-{huge}"),
            &["--memory", "64M", "--size", "1G", "--huge", huge],
            &group.entrance(),
        );
        let stat = group.path().join("memory.stat");
        let finished = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !finished.load(Relaxed) {
                    most = most.max(charged(&stat));
                    std::thread::sleep(Duration::from_millis(5));
                }
                most
            });
            // A process in the group writes, reads, maps, and makes small files, as dd and cat do.
            let big = mount.file("big");
            let (size, seed) = (256, 5);
            let worker = format!(
                "set -e; cd {}; {} fill {} {size} {seed}; {} check {} {size} {seed}; {} map {} {size} {seed}; \
                 for i in $(seq 300); do head -c 20000 big > small.$i; done; cat small.* | wc -c",
                mount.path().display(),
                RANDOM_OPERATIONS,
                big.display(),
                RANDOM_OPERATIONS,
                big.display(),
                RANDOM_OPERATIONS,
                big.display(),
            );
            let mut command = Command::new("sh");
            command.arg("-c").arg(worker).stdout(Stdio::piped());
            mount::enter(&mut command, &group.entrance());
            let output = command.output().expect("sh");
            finished.store(true, Relaxed);
            assert!(output.status.success(), "{output:?}");
            assert_eq!(
                String::from_utf8_lossy(&output.stdout).lines().last().map(str::trim),
                Some("6000000")
            );
            watch.join().expect("the watch")
        });
        let allowed = LIMIT + LIMIT / 20 + 16 * MIB;
        println!("huge={huge}: at most {} MiB of {} MiB; {:?}", most / MIB, allowed / MIB, mount.figures());
        assert!(most <= allowed, "{most} bytes, {allowed} allowed");
        assert!(mount.figures()["content"] >= 256 * MIB);
    }
}

/// Anonymous memory and page cache of a cgroup, in bytes.
fn charged(stat: &Path) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    match (value("total_rss "), value("total_cache ")) {
        (Some(rss), Some(cache)) => rss + cache,
        _ => value("anon ").unwrap_or(0) + value("file ").unwrap_or(0),
    }
}

//! `folioswap mount`: that it behaves as a tmpfs, keeps its limit, and ends as it should.

use folioswap_acceptance::{MIB, mount, mount::Mount, programs, skip};
use folioswap_peer::{Cgroup, controller};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const RANDOM_OPERATIONS: &str = env!("CARGO_BIN_EXE_acc-tmpfs");

macro_rules! needs_fuse {
    () => {
        if let Some(reason) = mount::missing() {
            skip!("{reason}");
        }
    };
}

fn folioswap<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Output {
    Command::new(programs::folioswap()).args(words).output().expect("folioswap can be run")
}

#[track_caller]
fn refused(output: &Output, status: i32, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    let lower = text.to_lowercase();
    for word in words {
        assert!(lower.contains(&word.to_lowercase()), "{word:?} is missing in: {text}");
    }
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

fn fallocate(file: &File, mode: i32, at: u64, length: u64) -> io::Result<()> {
    // SAFETY: a plain system call.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, length as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn new_file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("a new file")
}

#[test]
fn files_and_directories_are_as_on_tmpfs() {
    needs_fuse!();
    let mount = Mount::new("files", &["--memory", "64M", "--size", "64M", "--swap-max", "0"]);
    assert_eq!(fs::metadata(mount.path()).expect("root").permissions().mode() & 0o7777, 0o1777);

    // An open file lives on without a name, and its place is given back afterwards.
    let mut open = new_file(&mount.file("open"));
    open.write_all(b"still here").expect("write");
    fs::remove_file(mount.file("open")).expect("unlink");
    assert_eq!(open.metadata().expect("fstat").nlink(), 0);
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).expect("seek");
    open.read_to_string(&mut text).expect("read");
    assert_eq!(text, "still here");
    drop(open);

    // Links count; directories count their directories.
    fs::create_dir_all(mount.file("a/b")).expect("mkdir");
    fs::write(mount.file("a/x"), b"x").expect("write");
    fs::hard_link(mount.file("a/x"), mount.file("a/b/y")).expect("link");
    assert_eq!(fs::metadata(mount.file("a/b/y")).expect("stat").nlink(), 2);
    assert_eq!(fs::metadata(mount.file("a")).expect("stat").nlink(), 3);
    assert_eq!(error(fs::remove_dir(mount.file("a"))), libc::ENOTEMPTY);

    // Renames with flags.
    fs::write(mount.file("z"), b"z").expect("write");
    assert_eq!(error(rename2(&mount.file("z"), &mount.file("a/x"), libc::RENAME_NOREPLACE)), libc::EEXIST);
    rename2(&mount.file("z"), &mount.file("a"), libc::RENAME_EXCHANGE).expect("exchange");
    assert!(mount.file("z/b").is_dir() && mount.file("a").is_file());
    assert_eq!(error(fs::rename(mount.file("z"), mount.file("z/b/inside"))), libc::EINVAL);
    rename2(&mount.file("a"), &mount.file("c"), libc::RENAME_WHITEOUT).expect("whiteout");
    assert_eq!(fs::symlink_metadata(mount.file("a")).expect("a whiteout").rdev(), 0);

    // What is not a file or directory.
    symlink("z/x", mount.file("link")).expect("symlink");
    assert_eq!(fs::read(mount.file("link")).expect("through a link"), b"x");
    let fifo = std::ffi::CString::new(mount.file("fifo").to_str().expect("UTF-8")).expect("a path");
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    let _socket = std::os::unix::net::UnixListener::bind(mount.file("socket")).expect("a socket");
    std::os::unix::net::UnixStream::connect(mount.file("socket")).expect("a connection");

    // A long listing, with names removed while it goes on.
    fs::create_dir(mount.file("many")).expect("mkdir");
    for number in 0..3000 {
        drop(new_file(&mount.file(&format!("many/file number {number}"))));
    }
    let mut seen = std::collections::HashSet::new();
    for (number, entry) in fs::read_dir(mount.file("many")).expect("list").enumerate() {
        let entry = entry.expect("an entry");
        assert!(seen.insert(entry.file_name()), "{:?} twice", entry.file_name());
        if number % 3 == 0 {
            fs::remove_file(entry.path()).expect("unlink");
        }
    }
    assert_eq!(seen.len(), 3000);
    assert_eq!(fs::read_dir(mount.file("many")).expect("list").count(), 2000);

    // A set-group-id directory gives its group on.
    let shared = mount.file("shared");
    fs::create_dir(&shared).expect("mkdir");
    std::os::unix::fs::chown(&shared, None, Some(4711)).expect("chown");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2775)).expect("chmod");
    fs::create_dir(shared.join("below")).expect("mkdir");
    let below = fs::metadata(shared.join("below")).expect("stat");
    assert_eq!((below.gid(), below.mode() & 0o2000), (4711, 0o2000));

    // Times before 1970 and with nanoseconds.
    let times =
        [libc::timespec { tv_sec: -2, tv_nsec: 500_000_001 }, libc::timespec { tv_sec: 1 << 33, tv_nsec: 7 }];
    let file = File::open(mount.file("c")).expect("open");
    // SAFETY: two times, as it takes.
    assert_eq!(unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) }, 0);
    let found = fs::metadata(mount.file("c")).expect("stat");
    assert_eq!(
        (found.atime(), found.atime_nsec(), found.mtime(), found.mtime_nsec()),
        (-2, 500_000_001, 1 << 33, 7)
    );
}

#[test]
fn contents_are_as_on_tmpfs() {
    needs_fuse!();
    let mount = Mount::new("contents", &["--memory", "64M", "--size", "32M", "--swap-max", "0"]);
    let file = new_file(&mount.file("sparse"));
    file.set_len(16 * MIB).expect("grow");
    file.write_all_at(&[7; 8192], 4 * MIB).expect("write");
    assert_eq!(file.metadata().expect("stat").blocks(), 16);
    // SAFETY: plain system calls.
    let seek = |at: u64, whence| unsafe { libc::lseek(file.as_raw_fd(), at as i64, whence) };
    assert_eq!(seek(0, libc::SEEK_DATA), 4 * MIB as i64);
    assert_eq!(seek(4 * MIB, libc::SEEK_HOLE), 4 * MIB as i64 + 8192);
    assert_eq!(seek(5 * MIB, libc::SEEK_DATA), -1);
    assert_eq!(seek(5 * MIB, libc::SEEK_HOLE), 5 * MIB as i64);

    // What was stored through a mapping alone is data too, before anybody asked for it to be written.
    let length = 16 * MIB as usize;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), length, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: within the mapping.
    unsafe { start.cast::<u8>().add(8 << 20).write_volatile(9) };
    assert_eq!(seek(5 * MIB, libc::SEEK_DATA), 8 * MIB as i64);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 8 * MIB).expect("read");
    assert_eq!(byte, [9]);
    file.write_all_at(&[3], 8 * MIB).expect("write");
    // SAFETY: within the mapping.
    assert_eq!(unsafe { start.cast::<u8>().add(8 << 20).read_volatile() }, 3);
    // SAFETY: it is ours.
    unsafe { libc::munmap(start, length) };

    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, punch, 4 * MIB + 100, 8000).expect("punch");
    let mut found = [1; 8192];
    file.read_exact_at(&mut found, 4 * MIB).expect("read");
    assert!(found[..100].iter().all(|&byte| byte == 7) && found[100..8100].iter().all(|&byte| byte == 0));
    assert!(found[8100..].iter().all(|&byte| byte == 7));
    fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 20 * MIB, MIB).expect("allocate");
    assert_eq!(file.metadata().expect("stat").len(), 16 * MIB);
    assert_eq!(error(fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);

    // Full: what does not fit is refused, and all that was there is unharmed.
    let big = new_file(&mount.file("big"));
    let block = vec![5; 1 << 20];
    let mut written = 0;
    let failure = loop {
        match big.write_at(&block, written) {
            Ok(more) => written += more as u64,
            Err(error) => break error,
        }
        assert!(written <= 32 * MIB, "more than fits was taken");
    };
    assert_eq!(failure.raw_os_error(), Some(libc::ENOSPC));
    assert!(written >= 28 * MIB, "only {written} bytes fitted");
    assert_eq!(error(fallocate(&big, 0, 64 * MIB, 40 * MIB)), libc::ENOSPC);
    let mut back = Vec::new();
    File::open(mount.file("big")).expect("open").read_to_end(&mut back).expect("read");
    assert!(back.len() as u64 == written && back.iter().all(|&byte| byte == 5));
    fs::remove_file(mount.file("big")).expect("unlink");
    drop(big);
    assert_eq!(error(File::options().custom(libc::O_TMPFILE, mount.path())), libc::EOPNOTSUPP);

    stores_that_find_no_room_are_told(&mount);
    set_user_id_is_gone_at_once(&mount);

    // Locks.
    let other = File::options().read(true).write(true).open(mount.file("sparse")).expect("open");
    file.lock().expect("flock");
    assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
    file.unlock().expect("unlock");
    other.try_lock().expect("flock");
}

/// What was stored through a mapping where there is no room is an error of msync, also when the kernel brings it together with pages that fit.
#[track_caller]
fn stores_that_find_no_room_are_told(mount: &Mount) {
    // What was removed is given back when the kernel has forgotten it.
    let start = Instant::now();
    while mount.figures()["content"] > 4 * MIB {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", mount.figures());
        std::thread::sleep(Duration::from_millis(5));
    }
    let filler = new_file(&mount.file("filler"));
    // All but 64 KiB.
    let figures = mount.figures();
    let room = figures["content_max"] - figures["content"] - (64 << 10);
    fallocate(&filler, 0, 0, room).expect("allocate");
    let file = new_file(&mount.file("mapped"));
    let length = 128 << 10;
    file.set_len(length as u64).expect("grow");
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), length, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the mapping is this long.
    unsafe { start.cast::<u8>().write_bytes(9, length) };
    // SAFETY: the whole mapping.
    let written = unsafe { libc::msync(start, length, libc::MS_SYNC) };
    let error = io::Error::last_os_error();
    // SAFETY: it is ours.
    unsafe { libc::munmap(start, length) };
    assert_eq!((written, error.raw_os_error()), (-1, Some(libc::ENOSPC)), "{:?}", mount.figures());
    drop((file, filler));
    fs::remove_file(mount.file("mapped")).expect("unlink");
    fs::remove_file(mount.file("filler")).expect("unlink");
}

/// Who writes without privilege takes set-user-id away, and nobody sees it any more when write(2) has returned. What root copies keeps it, as
/// with write(2).
#[track_caller]
fn set_user_id_is_gone_at_once(mount: &Mount) {
    let path = mount.file("set user id");
    let file = new_file(&path);
    let mode = || fs::metadata(&path).expect("stat").permissions().mode() & 0o7777;
    for _ in 0..50 {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).expect("chmod");
        file.write_all_at(b"root", 0).expect("write");
        assert_eq!(mode(), 0o4777);
        // SAFETY: of this thread alone, and back again; both calls return who it was.
        unsafe { libc::syscall(libc::SYS_setfsuid, 65534) };
        let result = file.write_all_at(b"user", 0);
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_setfsuid, 0) };
        result.expect("write");
        assert_eq!(mode(), 0o777);
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).expect("chmod");
    // SAFETY: plain system call on files of ours; no offsets are kept.
    let copied = unsafe {
        let (mut from, mut to) = (0, 100);
        libc::copy_file_range(file.as_raw_fd(), &raw mut from, file.as_raw_fd(), &raw mut to, 4, 0)
    };
    assert_eq!((copied, mode()), (4, 0o4777));
    fs::remove_file(&path).expect("unlink");
}

/// `open` with flags of our own.
trait Custom {
    fn custom(&mut self, flags: i32, path: &Path) -> io::Result<File>;
}

impl Custom for OpenOptions {
    fn custom(&mut self, flags: i32, path: &Path) -> io::Result<File> {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self.write(true), flags).open(path)
    }
}

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
    // A rename that leaves a whiteout is done, or not at all.
    assert_eq!(error(rename2(&mount.file("1"), &mount.file("x"), libc::RENAME_WHITEOUT)), libc::ENOSPC);
    assert!(mount.file("1").is_file() && !mount.file("x").exists());
    for number in 0..499 {
        fs::remove_file(mount.file(&format!("{number}"))).expect("unlink");
    }
    fs::create_dir_all(mount.file("a/b/c")).expect("mkdir");
    fs::remove_dir_all(mount.file("a")).expect("rmdir");
    // The kernel says soon what it forgets.
    let start = Instant::now();
    while mount.figures()["inodes"] > 1 || mount.figures()["inodes_known"] > 1 {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", mount.figures());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(mount.figures()["content"], 0);
}

/// Links, their names, attributes and link targets count towards the limit, and are refused when it is full; what is there can be removed then.
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
    // The rest is filled in small pieces, until no name has room.
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

/// Daemon and page cache in a cgroup with what reads and writes, contents four times the limit.
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
            // A process in the group writes, reads, maps, and makes small files; dd and cat, as anybody would.
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

/// Anonymous memory and page cache of a cgroup.
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

/// Several processes against an oracle, with far more contents than fit. `FOLIOSWAP_TMPFS_SECONDS=3600` is the long form.
#[test]
fn random_operations_of_several_processes() {
    needs_fuse!();
    let seconds =
        std::env::var("FOLIOSWAP_TMPFS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    // The long form takes another seed each time, and names it.
    let seed = if seconds > 8 { std::process::id() } else { 1 };
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

#[test]
fn a_killed_daemon_leaves_a_clear_end() {
    needs_fuse!();
    let mut mount = Mount::new("killed", &["--memory", "32M"]);
    let file = new_file(&mount.file("file"));
    file.write_all_at(b"x", 0).expect("write");
    mount.signal(libc::SIGKILL);
    mount.wait();
    let start = Instant::now();
    assert_eq!(error(fs::read_dir(mount.path())), libc::ENOTCONN);
    assert_eq!(error(file.write_at(b"y", 0)), libc::ENOTCONN);
    assert_eq!(error(File::create(mount.file("other"))), libc::ENOTCONN);
    assert!(start.elapsed() < Duration::from_secs(2), "accesses hang");
    let path = mount.path().to_str().expect("UTF-8").to_owned();
    refused(&folioswap(&["mount", &path, "--memory", "32M"]), 1, &["daemon is gone", "folioswap umount"]);
    drop(file);
    let cleaned = folioswap(&["umount", &path]);
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert!(!mount.is_mounted() && mount.path().is_dir());
}

#[test]
fn signals_and_umount_end_it() {
    needs_fuse!();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut mount = Mount::new("signal", &["--memory", "32M"]);
        fs::write(mount.file("a"), b"a").expect("write");
        mount.signal(signal);
        assert_eq!(mount.wait().code(), Some(0));
        assert!(!mount.is_mounted());
    }
    // In use: umount refuses; a signal takes it out of sight, and who has it open goes on.
    let mut mount = Mount::new("busy", &["--memory", "32M"]);
    let path = mount.path().to_str().expect("UTF-8").to_owned();
    let file = new_file(&mount.file("file"));
    file.write_all_at(b"kept", 0).expect("write");
    refused(&folioswap(&["umount", &path]), 1, &["in use", "--lazy"]);
    refused(&folioswap(&["mount", &path, "--memory", "32M"]), 1, &["already", "folioswap umount"]);
    mount.signal(libc::SIGTERM);
    let start = Instant::now();
    while mount.is_mounted() {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut found = [0; 4];
    file.read_exact_at(&mut found, 0).expect("read");
    assert_eq!(&found, b"kept");
    drop(file);
    assert_eq!(mount.wait().code(), Some(0));
}

/// The swap file lies where the caller meant, not where the daemon works.
#[test]
fn a_relative_swap_directory_is_the_callers() {
    needs_fuse!();
    let place = PathBuf::from(format!("/var/tmp/folioswap-acc-relative-{}", std::process::id()));
    fs::create_dir_all(place.join("mount")).expect("mkdir");
    fs::create_dir_all(place.join("swap here")).expect("mkdir");
    let both: [&[&str]; 2] = [&["--swap-dir", "swap here"], &["--swap", "zram", "--swap", "file:swap here"]];
    let outputs = both.map(|words| {
        let mut command = Command::new(programs::folioswap());
        let output = command.args(["mount", "mount", "-m", "32M"]).args(words).current_dir(&place).output();
        drop(folioswap(&["umount", place.join("mount").to_str().expect("UTF-8")]));
        output.expect("folioswap can be run")
    });
    drop(fs::remove_dir_all(&place));
    for output in outputs {
        assert!(output.status.success(), "{output:?}");
    }
}

/// What lies under a mount stays when the mount ends, and what lies over it too.
#[test]
fn the_end_of_a_mount_is_its_own() {
    needs_fuse!();
    let place = PathBuf::from(format!("/var/tmp/folioswap-acc-under-{}", std::process::id()));
    let other = place.join("mount");
    fs::create_dir_all(&other).expect("mkdir");
    // A mount table of its own, so that nothing is left behind; each path is mounted on in layers.
    let script = "set -e
        trap 'kill -9 $first $second $third 2>/dev/null || :' EXIT
        mounted() { for i in $(seq 200); do grep -q \" $1 .* folioswap \" /proc/self/mountinfo && return; sleep 0.05; done; false; }
        mount -t tmpfs below $2; echo kept > $2/file
        $1 mount $2 -m 32M --foreground & first=$!
        mounted $2
        echo over > $2/file; $1 umount $2; wait $first; cat $2/file
        $1 mount $2 -m 32M --foreground & second=$!
        mounted $2
        kill -TERM $second; wait $second; cat $2/file
        $1 mount $2 -m 32M --foreground & third=$!
        mounted $2
        echo third > $2/file
        mount -t tmpfs above $2; echo above > $2/file
        kill -TERM $third; sleep 0.3; cat $2/file
        umount $2; cat $2/file; $1 umount $2; wait $third; cat $2/file";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(programs::folioswap())
        .arg(&other)
        .output()
        .expect("unshare");
    drop(fs::remove_dir_all(&place));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\nkept\nabove\nthird\nkept\n", "{output:?}");
}

/// As most people use it: the command returns, and a daemon goes on.
#[test]
fn it_goes_on_in_the_background() {
    needs_fuse!();
    let path = PathBuf::from(format!("/var/tmp/folioswap-acc-background-{}", std::process::id()));
    fs::create_dir_all(&path).expect("mkdir");
    let words = ["mount", path.to_str().expect("UTF-8"), "--memory", "32M", "--mode", "700"];
    let start = Instant::now();
    // Its output is at its end when it returns, although the daemon goes on.
    let output = folioswap(&words);
    let took = start.elapsed();
    let wrote = fs::write(path.join("a"), b"a");
    let mode = fs::metadata(&path).map(|found| found.permissions().mode() & 0o7777);
    let left = folioswap(&["umount", path.to_str().expect("UTF-8")]);
    drop(fs::remove_dir(&path));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    wrote.expect("write");
    assert_eq!(mode.expect("stat"), 0o700);
    assert!(left.status.success(), "{left:?}");
    assert!(!path.exists(), "it was unmounted, so the directory could go");
}

#[test]
fn what_cannot_be_mounted_is_refused() {
    let place = PathBuf::from(format!("/var/tmp/folioswap-acc-refused-{}", std::process::id()));
    fs::create_dir_all(&place).expect("mkdir");
    let (directory, missing, file) =
        (place.to_str().expect("UTF-8"), place.join("missing"), place.join("file"));
    fs::write(&file, b"").expect("write");
    let (missing, file) = (missing.to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    let refusals: [(&[&str], i32, &[&str]); 16] = [
        (&[missing, "-m", "64M"], 1, &["does not exist", "mkdir"]),
        (&[file, "-m", "64M"], 1, &["not a directory"]),
        (&[directory], 125, &["--memory"]),
        (&[directory, "-m", "16M"], 1, &["too small", "32"]),
        (&[directory, "-m", "900T"], 1, &["more than this machine's ram"]),
        (&[directory, "-m", "much"], 125, &["not a size"]),
        (&[directory, "-m", "64M", "--size", "0"], 1, &["--size", "4k"]),
        (&[directory, "-m", "64M", "--huge", "sometimes"], 125, &["within_size"]),
        (&[directory, "-m", "64M", "--mode", "999"], 125, &["octal"]),
        (&[directory, "-m", "64M", "--inodes", "0"], 125, &["--inodes"]),
        (&[directory, "-m", "64M", "--swap", "ram,size=900T"], 1, &["more than this machine's ram"]),
        (&[directory, "-m", "64M", "--swap", "zram", "--swap", "zram"], 1, &["given twice"]),
        (&[directory, "-m", "64M", "--swap", &format!("file:{file}")], 1, &["give it room first"]),
        (&[directory, "-m", "64M", "--swap", "zram", "--swap-max", "1G"], 1, &["--swap-max", "size=SIZE"]),
        (&[directory, "-m", "64M", "--swap-dir", missing], 1, &["--swap-dir", "--swap-max 0"]),
        (
            &[directory, "-m", "64M", "--swap", "file:/var/tmp", "--swap", "file:/var/tmp/."],
            1,
            &["one directory"],
        ),
    ];
    let results =
        refusals.map(|(words, status, said)| (folioswap(&[&["mount"], words].concat()), status, said));
    // Without the device: a namespace of its own with an empty /dev.
    let hidden = Command::new("unshare")
        .args(["-m", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "sh"])
        .arg(programs::folioswap())
        .args(["mount", directory, "-m", "64M"])
        .output();
    let nothing = folioswap(&["umount", directory]);
    let gone = folioswap(&["umount", missing]);
    drop(fs::remove_dir_all(&place));
    for (output, status, said) in &results {
        refused(output, *status, said);
    }
    refused(&nothing, 1, &["not a folioswap mount"]);
    refused(&gone, 1, &["No such file"]);
    if mount::missing().is_none() {
        refused(&hidden.expect("unshare"), 1, &["/dev/fuse", "modprobe fuse"]);
    }
    // Nothing of ours was left mounted.
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    assert!(!mounts.contains(directory), "{mounts}");
}

/// Without root it goes through fusermount3.
#[test]
fn somebody_else_may_mount() {
    needs_fuse!();
    if programs::which("fusermount3").is_none() {
        skip!("fusermount3 (package fuse3) is not installed");
    }
    let path = PathBuf::from(format!("/var/tmp/folioswap-acc-other-{}", std::process::id()));
    fs::create_dir_all(&path).expect("mkdir");
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("chown");
    // Where the tests were built, others may not look.
    let command = PathBuf::from(format!("/var/tmp/folioswap-acc-other-command-{}", std::process::id()));
    fs::copy(programs::folioswap(), &command).expect("a copy");
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("chmod");
    // A mount table of its own, in which everybody may open the device, as udev has it.
    let prepare = "mknod -m 666 $0.fuse c 10 229 && mount --bind $0.fuse /dev/fuse && \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$2\" $0 $1";
    let script =
        "$0 mount $1 -m 64M --swap-max 0 && echo mine > $1/a && cat $1/a && stat -c %u $1/a && $0 umount $1";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", prepare])
        .args([&command, &path])
        .arg(script)
        .output();
    let output = output.expect("unshare");
    drop(fs::remove_file(command.with_extension("fuse")));
    drop(fs::remove_file(&command));
    drop(folioswap(&["umount", "--lazy", path.to_str().expect("UTF-8")]));
    drop(fs::remove_dir(&path));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\n65534\n");
}

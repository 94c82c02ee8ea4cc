//! Files, directories and their contents behave as on the kernel's tmpfs.

use crate::{error, new_file, rename2};
use folioswap_acceptance::{MIB, mount, mount::Mount, skip};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

fn fallocate(file: &File, mode: i32, at: u64, length: u64) -> io::Result<()> {
    // SAFETY: a plain system call.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, length as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn files_and_directories_are_as_on_tmpfs() {
    needs_fuse!();
    let mount = Mount::new("files", &["--memory", "64M", "--size", "64M", "--swap-max", "0"]);
    assert_eq!(fs::metadata(mount.path()).expect("root").permissions().mode() & 0o7777, 0o1777);

    // An open file lives on without a name, and its space is freed afterwards.
    let mut open = new_file(&mount.file("open"));
    open.write_all(b"still here").expect("write");
    fs::remove_file(mount.file("open")).expect("unlink");
    assert_eq!(open.metadata().expect("fstat").nlink(), 0);
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).expect("seek");
    open.read_to_string(&mut text).expect("read");
    assert_eq!(text, "still here");
    drop(open);

    // Links are counted, and directories count their subdirectories.
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

    // File types other than files and directories.
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

    // A set-group-id directory passes its group on.
    let shared = mount.file("shared");
    fs::create_dir(&shared).expect("mkdir");
    std::os::unix::fs::chown(&shared, None, Some(4711)).expect("chown");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2775)).expect("chmod");
    fs::create_dir(shared.join("below")).expect("mkdir");
    let below = fs::metadata(shared.join("below")).expect("stat");
    assert_eq!((below.gid(), below.mode() & 0o2000), (4711, 0o2000));

    // Times before 1970, and with nanoseconds.
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

    // Bytes that were stored through a mapping alone are data too, before any write-back was
    // requested.
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

    // On a full mount, data that does not fit is refused, and the existing contents are unharmed.
    let before = mount.figures()["content"];
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

    stores_that_find_no_room_are_told(&mount, before);
    set_user_id_is_gone_at_once(&mount);

    // Locks.
    let other = File::options().read(true).write(true).open(mount.file("sparse")).expect("open");
    file.lock().expect("flock");
    assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
    file.unlock().expect("unlock");
    other.try_lock().expect("flock");
}

/// A store through a mapping for which there is no room is an error of msync, also when the kernel
/// writes it together with pages that fit. `content` is what the files hold that are still there.
#[track_caller]
fn stores_that_find_no_room_are_told(mount: &Mount, content: u64) {
    // The space of a removed file is freed once the kernel has forgotten the file, piece by piece.
    let start = Instant::now();
    while mount.figures()["content"] > content {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", mount.figures());
        std::thread::sleep(Duration::from_millis(5));
    }
    let filler = new_file(&mount.file("filler"));
    // All space but 64 KiB.
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

/// A write without privilege clears the set-user-id bit, and no process sees the bit any more when
/// write(2) has returned. A copy by root keeps it, as with write(2).
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

/// `open` with further flags.
trait Custom {
    fn custom(&mut self, flags: i32, path: &Path) -> io::Result<File>;
}

impl Custom for OpenOptions {
    fn custom(&mut self, flags: i32, path: &Path) -> io::Result<File> {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self.write(true), flags).open(path)
    }
}

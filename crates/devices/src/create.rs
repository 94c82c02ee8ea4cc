//! Making the swap file, for the supervisor (std).

use std::fmt;
use std::fs;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatfs, ftruncate, open, statvfs, unlink};
use rustix::io::Errno;

use crate::file::{FileDevice, FileError};
use crate::location::FileSlot;
use crate::page::PAGE_SIZE;

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;
const OVERLAYFS_MAGIC: i64 = 0x794c_7630;
/// Names tried before giving up, on file systems that cannot make files without a name.
const NAMES_MAX: u32 = 64;

/// The reason why there is no swap file. Each message says what the user can do.
#[derive(Debug)]
pub enum CreateError {
    /// The directory is in memory, so swapping there would free nothing.
    InMemory {
        /// The directory.
        dir: PathBuf,
        /// `tmpfs`, `ramfs`, or an overlay on one.
        file_system: &'static str,
    },
    /// The file system has no direct I/O, so pages would be cached in the very memory that they are
    /// to leave.
    NoDirectIo {
        /// The directory.
        dir: PathBuf,
        /// The error of the attempt.
        error: Errno,
    },
    /// A test write or read of one page failed.
    NotUsable {
        /// The directory.
        dir: PathBuf,
        /// The error of the attempt.
        error: FileError,
    },
    /// The file could not be made, or the directory could not be examined.
    System {
        /// The directory.
        dir: PathBuf,
        /// The step that failed, for the message.
        doing: &'static str,
        /// The error of that step.
        errno: Errno,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InMemory { dir, file_system } => write!(
                f,
                "{} is a {file_system}, which keeps its files in memory: swapping there would free nothing. \
                 Name a directory on a disk (in a container: a volume)",
                dir.display()
            ),
            Self::NoDirectIo { dir, error } => write!(
                f,
                "the file system of {} does not support direct I/O ({error}), so swapped pages would stay in its cache. \
                 Name a directory on ext4, xfs or btrfs",
                dir.display()
            ),
            Self::NotUsable { dir, error } => write!(
                f,
                "a swap file in {} does not keep a page: {error}. Free some space or name another directory",
                dir.display()
            ),
            Self::System { dir, doing, errno } => {
                write!(f, "{doing} in {}: {errno}. ", dir.display())?;
                f.write_str(match *errno {
                    Errno::NOENT | Errno::NOTDIR => "Make that directory or name another one",
                    Errno::ACCESS | Errno::PERM | Errno::ROFS => "Name a directory that you may write to",
                    _ => "Name another directory",
                })
            }
        }
    }
}

impl std::error::Error for CreateError {}

/// Makes an empty swap file in `dir`: without a name, mode 0600, read-write, direct I/O,
/// close-on-exec. Its space is freed when the last descriptor is closed.
///
/// One page is written, read back and truncated away again, so that a file system that only
/// pretends to store pages is found here.
///
/// # Errors
///
/// [`CreateError`], with a message for the user.
pub fn create_swap_file(dir: &Path) -> Result<OwnedFd, CreateError> {
    let fd = open_without_name(dir)?;
    refuse_memory(dir, &fd)?;
    probe(dir, &fd)?;
    Ok(fd)
}

/// The time at which a part of a device's file gets its blocks on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// At once, so that a full disk shows here and not in the middle of an eviction. A file system
    /// that cannot allocate in advance allocates when the part is written.
    Now,
    /// When it is written; for files in memory.
    WhenWritten,
}

/// Makes the bytes `range` a part of the file, whose length the caller believes to be `length`
/// bytes, and returns its new length. Costs one system call, two where the file system cannot
/// allocate in advance.
///
/// # Errors
/// The system's errors; NOSPC where the disk is full.
pub fn reserve(file: impl AsFd, how: Reserve, range: Range<u64>, length: u64) -> Result<u64, Errno> {
    let allocated = match how {
        Reserve::Now => fallocate(&file, FallocateFlags::empty(), range.start, range.end - range.start),
        Reserve::WhenWritten => Err(Errno::OPNOTSUPP),
    };
    match allocated {
        Err(Errno::OPNOTSUPP) if range.end > length => ftruncate(&file, range.end)?,
        Err(Errno::OPNOTSUPP) => {}
        other => other?,
    }
    Ok(length.max(range.end))
}

/// Half the free space, in bytes, of the file system that `dir` is on: the default of `--swap-max`.
///
/// # Errors
///
/// [`CreateError::System`].
pub fn default_swap_max(dir: &Path) -> Result<u64, CreateError> {
    let stat = statvfs(dir).map_err(system(dir, "looking for free space"))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize) / 2)
}

fn system<'a>(dir: &'a Path, doing: &'static str) -> impl Fn(Errno) -> CreateError + 'a {
    move |errno| CreateError::System { dir: dir.to_path_buf(), doing, errno }
}

/// Opens a file without a name. A second attempt without direct I/O distinguishes "no O_TMPFILE"
/// from "no O_DIRECT", and finds a file system in memory.
fn open_without_name(dir: &Path) -> Result<OwnedFd, CreateError> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let fd = match open(dir, flags | OFlags::TMPFILE | OFlags::DIRECT, mode) {
        Ok(fd) => fd,
        Err(_) => match open(dir, flags | OFlags::TMPFILE, mode) {
            // A file without a name is possible, so direct I/O was refused.
            Ok(fd) => {
                refuse_memory(dir, &fd)?;
                return Err(CreateError::NoDirectIo { dir: dir.to_path_buf(), error: Errno::INVAL });
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) if dir.is_dir() => {
                open_and_unlink(dir, flags, mode)?
            }
            Err(errno) => return Err(system(dir, "making a swap file")(errno)),
        },
    };
    Ok(fd)
}

/// Makes a file under an unused name and removes the name, for file systems without O_TMPFILE.
fn open_and_unlink(dir: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, CreateError> {
    for attempt in 0..NAMES_MAX {
        let path = dir.join(format!(".folioswap-{}-{attempt}", std::process::id()));
        match open(&path, flags | OFlags::CREATE | OFlags::EXCL | OFlags::DIRECT, mode) {
            Ok(fd) => {
                unlink(&path).map_err(system(dir, "unlinking the swap file"))?;
                return Ok(fd);
            }
            Err(Errno::EXIST) => {}
            Err(Errno::INVAL) => {
                // Some file systems make the file before they refuse the flag.
                let _ = unlink(&path);
                return Err(CreateError::NoDirectIo { dir: dir.to_path_buf(), error: Errno::INVAL });
            }
            Err(errno) => return Err(system(dir, "making a swap file")(errno)),
        }
    }
    Err(system(dir, "finding a free name for a swap file")(Errno::EXIST))
}

fn refuse_memory(dir: &Path, fd: &OwnedFd) -> Result<(), CreateError> {
    let magic = fstatfs(fd).map_err(system(dir, "asking for the file system"))?.f_type as i64;
    let file_system = match magic {
        OVERLAYFS_MAGIC => overlay_upper_in_memory(dir),
        magic => memory_file_system(magic),
    };
    match file_system {
        Some(file_system) => Err(CreateError::InMemory { dir: dir.to_path_buf(), file_system }),
        None => Ok(()),
    }
}

/// The name of a file system that keeps its files in memory, by its number in statfs(2).
pub(crate) fn memory_file_system(magic: i64) -> Option<&'static str> {
    match magic {
        TMPFS_MAGIC => Some("tmpfs"),
        RAMFS_MAGIC => Some("ramfs"),
        _ => None,
    }
}

/// The kind of memory file system below the overlay that `dir` is on, as far as it can be seen. The
/// mount options name the upper directory, but inside a container that directory usually cannot be
/// reached, and then the result is `None`.
fn overlay_upper_in_memory(dir: &Path) -> Option<&'static str> {
    let dir = dir.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let upper = upper_dir(&mounts, &dir)?;
    match rustix::fs::statfs(&upper).ok()?.f_type as i64 {
        TMPFS_MAGIC => Some("overlay on tmpfs"),
        RAMFS_MAGIC => Some("overlay on ramfs"),
        _ => None,
    }
}

/// The `upperdir` of the overlay mount with the longest mount point above `dir`.
fn upper_dir(mountinfo: &str, dir: &Path) -> Option<PathBuf> {
    let mut best: Option<(usize, &str)> = None;
    for line in mountinfo.lines() {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        if dir.starts_with(point) && best.is_none_or(|(len, _)| point.len() >= len) {
            best = Some((point.len(), right));
        }
    }
    let (_, right) = best?;
    let mut fields = right.split(' ');
    if fields.next() != Some("overlay") {
        return None;
    }
    let options = fields.nth(1)?;
    options.split(',').find_map(|option| option.strip_prefix("upperdir=")).map(PathBuf::from)
}

#[repr(align(4096))]
struct Aligned([u8; PAGE_SIZE]);

/// Writes a page, reads it back, and leaves the file empty.
fn probe(dir: &Path, fd: &OwnedFd) -> Result<(), CreateError> {
    let not_usable = |error| match error {
        FileError::Write { errno: Errno::INVAL, .. } | FileError::Read { errno: Errno::INVAL, .. } => {
            CreateError::NoDirectIo { dir: dir.to_path_buf(), error: Errno::INVAL }
        }
        error => CreateError::NotUsable { dir: dir.to_path_buf(), error },
    };
    let device = FileDevice::new(fd.as_fd());
    let Some(slot) = FileSlot::new(0) else { return Ok(()) };
    let mut page = Box::new(Aligned([0x5a; PAGE_SIZE]));
    device.write(slot, &page.0).map_err(not_usable)?;
    page.0.fill(0);
    device.read(slot, &mut page.0).map_err(not_usable)?;
    if page.0.iter().any(|&byte| byte != 0x5a) {
        return Err(not_usable(FileError::Read { slot, errno: Errno::IO }));
    }
    ftruncate(fd, 0).map_err(system(dir, "emptying the swap file"))
}

#[cfg(test)]
mod tests;

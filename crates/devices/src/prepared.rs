//! Swap files and block devices that the user prepared: `folioswap mkswap` makes them ([`make`]),
//! `run` opens them ([`open`]).
//!
//! Only [`make`] writes a header, and nothing writes to a device without one. An open target is
//! held exclusively: a block device by `O_EXCL`, which mounts, volume managers and the kernel's own
//! swap respect; a file by a lock (flock(2)) on the open file, which a descriptor that is passed on
//! keeps held.

use std::fmt;
use std::fs;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    FileType, FlockOperation, IFlags, Mode, OFlags, SeekFrom, flock, fstat, fstatfs, ioctl_getflags, major,
    minor, open as open_file, seek,
};
use rustix::io::{Errno, pread};
pub use uuid::Uuid;

use crate::create::memory_file_system;
use crate::file::{FileDevice, FileError, Medium};
use crate::header::{DATA_START, Header, HeaderError, SIZE_MIN};
use crate::location::FileSlot;
use crate::page::{PAGE_SIZE, Page};
use crate::signature;

/// The reason why a target cannot be made or used. Each message says what the user can do. Nothing
/// was written.
#[derive(Debug)]
pub enum PreparedError {
    /// The target is neither a regular file nor a block device.
    NotAFile,
    /// The target is smaller than header and one cluster.
    TooSmall {
        /// Its bytes.
        found: u64,
    },
    /// The system has mounted the target or uses it, or another program has opened it exclusively.
    InUse {
        /// The kind of use, as far as it is known.
        by: String,
    },
    /// Another run, or another device of this run, uses the target.
    Locked,
    /// The target lies in memory.
    InMemory {
        /// The name of the file system, for example `tmpfs`.
        file_system: &'static str,
    },
    /// The file system has no direct I/O there.
    NoDirectIo,
    /// The file system compresses the file, so the file does not keep its blocks.
    Compressed,
    /// The target has no usable header.
    Header {
        /// The defect of the header.
        error: HeaderError,
        /// The owner of the data, if it is known.
        found: Option<&'static str>,
    },
    /// The target holds data, and `--force` was not given.
    Occupied {
        /// The owner of the data, if it is known.
        found: Option<&'static str>,
    },
    /// The target is prepared already.
    AlreadyPrepared {
        /// Its UUID.
        uuid: Uuid,
    },
    /// The target has become smaller since it was prepared.
    Shrunk {
        /// Its bytes.
        found: u64,
        /// Bytes according to its header.
        expected: u64,
    },
    /// The header has another UUID than the caller named.
    WrongUuid {
        /// The UUID of the header.
        found: Uuid,
    },
    /// The header could not be written or read.
    Device(FileError),
    /// A step failed.
    System {
        /// The step, for the message.
        doing: &'static str,
        /// The system's error.
        errno: Errno,
    },
}

impl fmt::Display for PreparedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let as_what = |found: &Option<&'static str>| {
            found.map_or_else(String::new, |found| format!(": it looks like {found}"))
        };
        match self {
            Self::NotAFile => f.write_str("neither a regular file nor a block device; name one, or a directory for a temporary file"),
            Self::TooSmall { found: 0 } => {
                f.write_str("its size is 0; give it room first, e.g. `fallocate -l 16G FILE`")
            }
            Self::TooSmall { found } => {
                write!(f, "{found} bytes are too few; at least {SIZE_MIN} (4 MiB) are needed")
            }
            Self::InUse { by } => write!(f, "it is in use{by}; unmount it or switch it off first, or name another one"),
            Self::Locked => f.write_str(
                "another device of this or another run uses it (`folioswap swapon --show`); name each file once, or wait for that run's end",
            ),
            Self::InMemory { file_system } => {
                write!(f, "it lies on {file_system}, in memory: swapping there would free nothing; name a file on a disk")
            }
            Self::NoDirectIo => f.write_str(
                "its file system does not support direct I/O, so swapped pages would stay in its cache; name a file on ext4, xfs or btrfs",
            ),
            Self::Compressed => f.write_str(
                "its file system compresses it, so that its blocks move at each write; make it anew after `chattr +m` (btrfs: `chattr +C`) on the empty file",
            ),
            Self::Header { error: HeaderError::Foreign, found } => write!(
                f,
                "it has no header of folioswap{}; if what it holds may be lost, `folioswap mkswap` prepares it",
                as_what(found)
            ),
            Self::Header { error: error @ HeaderError::Version(_), .. } => {
                write!(f, "{error}; use the program that made it, or prepare it anew with `folioswap mkswap --force`")
            }
            Self::Header { error, .. } => write!(f, "{error}; `folioswap mkswap --force` prepares it anew"),
            Self::Occupied { found } => write!(
                f,
                "it is not empty{}; nothing was written. Name another one, or, if all of it may be lost, say `folioswap mkswap --force`",
                as_what(found)
            ),
            Self::AlreadyPrepared { uuid } => write!(
                f,
                "it is prepared already (UUID {uuid}) and can be used as it is; to make it anew say `folioswap mkswap --force`"
            ),
            Self::Shrunk { found, expected } => write!(
                f,
                "it has {found} bytes and had {expected} when it was prepared; is it the right one? `folioswap mkswap --force` prepares it anew"
            ),
            Self::WrongUuid { found } => write!(f, "its UUID is {found}: another device is there; name the right one, or write uuid={found}"),
            Self::Device(error) => write!(f, "{error}; look at the disk, or name another one"),
            Self::System { doing, errno } => {
                write!(f, "{doing}: {errno}; ")?;
                f.write_str(match *errno {
                    Errno::NOENT => "make it first, e.g. `fallocate -l 16G FILE` and `folioswap mkswap FILE`",
                    Errno::ACCESS | Errno::PERM | Errno::ROFS => "name one that you may write to",
                    _ => "name another one",
                })
            }
        }
    }
}

impl std::error::Error for PreparedError {}

fn system(doing: &'static str) -> impl Fn(Errno) -> PreparedError {
    move |errno| PreparedError::System { doing, errno }
}

/// The contents that [`make`] may overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// None: the target must be blank.
    Nothing,
    /// Any contents, but no target that is in use (`--force`).
    Anything,
}

/// An open target, held exclusively, with a usable header.
#[derive(Debug)]
pub struct Prepared {
    /// Read-write, direct, close-on-exec. The descriptor holds the target.
    pub fd: OwnedFd,
    /// [`Medium::File`] or [`Medium::Block`].
    pub medium: Medium,
    /// The target's header.
    pub header: Header,
    /// Unit of its discards in bytes, if it can discard.
    pub discard_bytes: Option<NonZeroU32>,
}

/// Opens a prepared target and holds it exclusively. Writes nothing. With `uuid` the target must
/// have that one. Waits up to 700 ms for a target that is in use.
///
/// # Errors
/// [`PreparedError`].
pub fn open(path: &Path, uuid: Option<Uuid>) -> Result<Prepared, PreparedError> {
    let target = Target::hold(path)?;
    let header = match target.header()? {
        Ok(header) => header,
        Err(error) => return Err(PreparedError::Header { error, found: signature::name(&target.start()?) }),
    };
    if uuid.is_some_and(|uuid| uuid != header.uuid) {
        return Err(PreparedError::WrongUuid { found: header.uuid });
    }
    if target.size < header.size {
        return Err(PreparedError::Shrunk { found: target.size, expected: header.size });
    }
    let discard_bytes = target.discard_bytes();
    Ok(Prepared { fd: target.fd, medium: target.medium, header, discard_bytes })
}

/// Writes a new header, and is the only function that does. The bytes between header and data
/// become zero, so that no signature of a former owner is left there; all other bytes stay. Waits
/// up to 700 ms for a target that is in use.
///
/// # Errors
/// [`PreparedError`]. Nothing was written, except for [`PreparedError::Device`].
pub fn make(path: &Path, overwrite: Overwrite) -> Result<Header, PreparedError> {
    let target = Target::hold(path)?;
    if overwrite == Overwrite::Nothing {
        if let Ok(header) = target.header()? {
            return Err(PreparedError::AlreadyPrepared { uuid: header.uuid });
        }
        let (start, end) = (target.start()?, target.end()?);
        if !signature::is_blank(&start, &end) {
            return Err(PreparedError::Occupied { found: signature::name(&start) });
        }
    }
    let header = Header { uuid: Uuid::new_v4(), size: target.size - target.size % DATA_START };
    let device = target.device();
    let slot =
        |bytes: u64| FileSlot::new(bytes / PAGE_SIZE as u64).ok_or(PreparedError::TooSmall { found: 0 });
    let mut pages = Pages::new(DATA_START as usize);
    // The header is written last, so that a half prepared target has none.
    device.write(slot(PAGE_SIZE as u64)?, &pages.bytes()[PAGE_SIZE..]).map_err(PreparedError::Device)?;
    // The second copy of a GPT would restore it.
    let end = target.size - target.size % PAGE_SIZE as u64;
    let tail = &pages.bytes()[..signature::END_BYTES];
    device.write(slot(end - signature::END_BYTES as u64)?, tail).map_err(PreparedError::Device)?;
    pages.bytes()[..PAGE_SIZE].copy_from_slice(&header.to_page());
    device.write(slot(0)?, &pages.bytes()[..PAGE_SIZE]).map_err(PreparedError::Device)?;
    rustix::fs::fsync(&target.fd).map_err(system("writing the header"))?;
    Ok(header)
}

/// Longest wait for a target that is in use: a run that has returned releases its devices a moment
/// later.
const IN_USE_WAIT_MAX: Duration = Duration::from_millis(700);

fn retry_while<T>(busy: Errno, mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(errno) if errno == busy && begin.elapsed() < IN_USE_WAIT_MAX => {
                std::thread::sleep(IN_USE_WAIT_MAX / 50)
            }
            result => return result,
        }
    }
}

/// A file or block device that this process holds.
struct Target {
    fd: OwnedFd,
    medium: Medium,
    size: u64,
}

impl Target {
    fn hold(path: &Path) -> Result<Self, PreparedError> {
        // The type is examined before opening, because opening a FIFO would wait, and a tape would
        // wind.
        let found = fs::metadata(path)
            .map_err(|error| system("looking at it")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let medium = match FileType::from_raw_mode(found.mode()) {
            FileType::RegularFile => Medium::File,
            FileType::BlockDevice => Medium::Block,
            _ => return Err(PreparedError::NotAFile),
        };
        if let Some(by) = used_by_system(path, &found) {
            return Err(PreparedError::InUse { by });
        }
        let alone = if medium == Medium::Block { OFlags::EXCL } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT | alone;
        let opened = retry_while(Errno::BUSY, || open_file(path, flags, Mode::empty()));
        let fd = opened.map_err(|errno| match errno {
            Errno::BUSY => {
                PreparedError::InUse { by: " (mounted, part of a volume, or another run's)".into() }
            }
            Errno::TXTBSY => PreparedError::InUse { by: " as a running program or as swap".into() },
            Errno::INVAL if medium == Medium::File => in_memory(path).unwrap_or(PreparedError::NoDirectIo),
            errno => system("opening it")(errno),
        })?;
        if medium == Medium::File {
            if let Some(error) = in_memory(path) {
                return Err(error);
            }
            let locked =
                retry_while(Errno::WOULDBLOCK, || flock(&fd, FlockOperation::NonBlockingLockExclusive));
            locked.map_err(|errno| match errno {
                Errno::WOULDBLOCK => PreparedError::Locked,
                errno => system("locking it")(errno),
            })?;
        }
        // Another file may have got this name meanwhile.
        let stat = fstat(&fd).map_err(system("looking at it"))?;
        if (stat.st_dev, stat.st_ino) != (found.dev(), found.ino()) {
            return Err(PreparedError::InUse { by: ": it was exchanged just now".into() });
        }
        if medium == Medium::File && ioctl_getflags(&fd).is_ok_and(|flags| flags.contains(IFlags::COMPRESSED))
        {
            return Err(PreparedError::Compressed);
        }
        let size = seek(&fd, SeekFrom::End(0)).map_err(system("asking for its size"))?;
        if size < SIZE_MIN {
            return Err(PreparedError::TooSmall { found: size });
        }
        Ok(Target { fd, medium, size })
    }

    fn device(&self) -> FileDevice<'_> {
        FileDevice::new(self.fd.as_fd()).on(self.medium)
    }

    fn header(&self) -> Result<Result<Header, HeaderError>, PreparedError> {
        let mut pages = Pages::new(PAGE_SIZE);
        let slot = FileSlot::new(0).ok_or(PreparedError::NotAFile)?;
        self.device().read(slot, pages.bytes()).map_err(PreparedError::Device)?;
        let page: &Page = pages.bytes()[..].try_into().map_err(|_| PreparedError::NotAFile)?;
        Ok(Header::from_page(page))
    }

    fn start(&self) -> Result<Vec<u8>, PreparedError> {
        self.bytes(0, signature::START_BYTES)
    }

    /// The last bytes up to the end of the last whole page. Direct I/O does not reach the bytes
    /// behind it, and neither does this crate.
    fn end(&self) -> Result<Vec<u8>, PreparedError> {
        let end = self.size - self.size % PAGE_SIZE as u64;
        self.bytes(end - signature::END_BYTES as u64, signature::END_BYTES)
    }

    fn bytes(&self, at: u64, count: usize) -> Result<Vec<u8>, PreparedError> {
        let mut pages = Pages::new(count);
        let mut done = 0;
        while done < count {
            match pread(&self.fd, &mut pages.bytes()[done..], at + done as u64) {
                Ok(0) => return Err(system("reading it")(Errno::IO)),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(system("reading it")(errno)),
            }
        }
        Ok(pages.bytes().to_vec())
    }

    /// Unit of discards in bytes. A file can be punched on every file system that does direct I/O;
    /// a block device's request queue says it.
    fn discard_bytes(&self) -> Option<NonZeroU32> {
        if self.medium == Medium::File {
            return NonZeroU32::new(PAGE_SIZE as u32);
        }
        let device = fstat(&self.fd).ok()?.st_rdev;
        let of = |place: &str| {
            let path = format!(
                "/sys/dev/block/{}:{}/{place}queue/discard_granularity",
                major(device),
                minor(device)
            );
            fs::read_to_string(path).ok()?.trim().parse::<u32>().ok()
        };
        // A partition has its disk's queue.
        of("").or_else(|| of("../")).and_then(NonZeroU32::new)
    }
}

fn in_memory(path: &Path) -> Option<PreparedError> {
    let directory = open_file(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let magic = fstatfs(&directory).ok()?.f_type as i64;
    memory_file_system(magic).map(|file_system| PreparedError::InMemory { file_system })
}

/// The system's current use of the target, for a message: mounted, the kernel's swap, or behind a
/// loop device.
fn used_by_system(path: &Path, found: &fs::Metadata) -> Option<String> {
    let same = |other: &Path| {
        fs::metadata(other).is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
    };
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_swap = |line: &str| line.split_whitespace().next().is_some_and(|name| same(&unescape(name)));
    if swaps.lines().skip(1).any(is_swap) {
        return Some(format!(" as the kernel's swap (`swapoff {}` ends that)", path.display()));
    }
    if FileType::from_raw_mode(found.mode()) == FileType::BlockDevice {
        let number = format!("{}:{}", major(found.rdev()), minor(found.rdev()));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let point = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            (fields.nth(2)? == number).then(|| fields.nth(1).unwrap_or("?").to_owned())
        });
        return point.map(|point| format!(": it is mounted on {}", unescape(&point).display()));
    }
    let loops = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    loops.filter(|entry| entry.file_name().to_string_lossy().starts_with("loop")).find_map(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        same(Path::new(backing.trim_end_matches('\n')))
            .then(|| format!(" behind /dev/{}", entry.file_name().display()))
    })
}

/// Decodes a path of the kernel's tables, in which a character that would break a line is a
/// backslash and three octal digits.
fn unescape(name: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
    while let [first, tail @ ..] = rest {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// A page-aligned buffer.
struct Pages {
    pages: Vec<AlignedPage>,
    bytes: usize,
}

#[repr(align(4096))]
#[derive(Clone)]
struct AlignedPage(#[expect(dead_code, reason = "only its place is used")] Page);

impl Pages {
    fn new(bytes: usize) -> Self {
        Pages { pages: vec![AlignedPage([0; PAGE_SIZE]); bytes.div_ceil(PAGE_SIZE)], bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the pages are aligned and follow each other without gaps, and have at least this
        // many bytes.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.bytes) }
    }
}

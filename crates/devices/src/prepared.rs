//! Swap files and block devices that the user prepared: `folioswap mkswap` makes them ([`make`]), `run` opens them ([`open`]).
//!
//! Nothing but [`make`] writes a header, and nothing writes to a device without one. Whoever has one open holds it alone: block devices
//! by `O_EXCL`, which mounts, volume managers and the kernel's own swap respect; files by a lock (flock(2)) on the open file, which a
//! descriptor that is handed on keeps held.

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

/// Why a target cannot be made or used. Each message says what to do; nothing was written.
#[derive(Debug)]
pub enum PreparedError {
    /// Neither a regular file nor a block device.
    NotAFile,
    /// Smaller than header and one cluster.
    TooSmall {
        /// Its bytes.
        found: u64,
    },
    /// The system has it mounted or in use, or another program has opened it for itself alone.
    InUse {
        /// As what, as far as it is known.
        by: String,
    },
    /// Another run (or device of this one) uses it.
    Locked,
    /// It lies in memory.
    InMemory {
        /// `tmpfs` or another.
        file_system: &'static str,
    },
    /// The file system does not do direct I/O there.
    NoDirectIo,
    /// The file is compressed by its file system: it does not keep its blocks.
    Compressed,
    /// It has no header of ours that can be used.
    Header {
        /// What is wrong with it.
        error: HeaderError,
        /// Whose data it is, if that is known.
        found: Option<&'static str>,
    },
    /// It holds something, and `--force` was not given.
    Occupied {
        /// Whose data it is, if that is known.
        found: Option<&'static str>,
    },
    /// It is prepared already.
    AlreadyPrepared {
        /// Its name.
        uuid: Uuid,
    },
    /// It has become smaller since.
    Shrunk {
        /// Its bytes.
        found: u64,
        /// What its header says.
        expected: u64,
    },
    /// Another one is there.
    WrongUuid {
        /// What its header says.
        found: Uuid,
    },
    /// Its header could not be written or read.
    Device(FileError),
    /// A step failed.
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
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

/// What [`make`] may overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// Nothing: the target must be blank.
    Nothing,
    /// Whatever is there, but nothing that is in use (`--force`).
    Anything,
}

/// A target that is open, held alone, and has a usable header.
#[derive(Debug)]
pub struct Prepared {
    /// Read-write, direct, close-on-exec; it holds the target.
    pub fd: OwnedFd,
    /// [`Medium::File`] or [`Medium::Block`].
    pub medium: Medium,
    /// What its header says.
    pub header: Header,
    /// In which pieces it discards, if it can.
    pub discard_bytes: Option<NonZeroU32>,
}

/// Opens a prepared target and holds it alone. Writes nothing.
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

/// Writes a new header, the one thing that does. What lies between header and data becomes zero, so that no mark of a former owner is
/// left there; the rest stays as it is.
///
/// # Errors
/// [`PreparedError`]; nothing was written, but for [`PreparedError::Device`].
pub fn make(path: &Path, overwrite: Overwrite) -> Result<Header, PreparedError> {
    let target = Target::hold(path)?;
    if overwrite == Overwrite::Nothing {
        if let Ok(header) = target.header()? {
            return Err(PreparedError::AlreadyPrepared { uuid: header.uuid });
        }
        let (start, end) = (target.start()?, target.end()?);
        if !signature::blank(&start, &end) {
            return Err(PreparedError::Occupied { found: signature::name(&start) });
        }
    }
    let header = Header { uuid: Uuid::new_v4(), size: target.size - target.size % DATA_START };
    let device = target.device();
    let slot =
        |bytes: u64| FileSlot::new(bytes / PAGE_SIZE as u64).ok_or(PreparedError::TooSmall { found: 0 });
    let mut pages = Pages::new(DATA_START as usize);
    // The header last: a target half prepared is none.
    device.write(slot(PAGE_SIZE as u64)?, &pages.bytes()[PAGE_SIZE..]).map_err(PreparedError::Device)?;
    // A GPT's other copy would bring it back.
    let end = target.size - target.size % PAGE_SIZE as u64;
    let tail = &pages.bytes()[..signature::END_BYTES];
    device.write(slot(end - signature::END_BYTES as u64)?, tail).map_err(PreparedError::Device)?;
    pages.bytes()[..PAGE_SIZE].copy_from_slice(&header.to_page());
    device.write(slot(0)?, &pages.bytes()[..PAGE_SIZE]).map_err(PreparedError::Device)?;
    rustix::fs::fsync(&target.fd).map_err(system("writing the header"))?;
    Ok(header)
}

/// How long one that is in use is waited for: a run that has returned lets go of its devices a moment later.
const PATIENCE: Duration = Duration::from_millis(700);

fn with_patience<T>(busy: Errno, mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(errno) if errno == busy && begin.elapsed() < PATIENCE => std::thread::sleep(PATIENCE / 50),
            result => return result,
        }
    }
}

/// A file or block device that we hold.
struct Target {
    fd: OwnedFd,
    medium: Medium,
    size: u64,
}

impl Target {
    fn hold(path: &Path) -> Result<Self, PreparedError> {
        // Looked at before it is opened: opening a FIFO would wait, and a tape would wind.
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
        let opened = with_patience(Errno::BUSY, || open_file(path, flags, Mode::empty()));
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
                with_patience(Errno::WOULDBLOCK, || flock(&fd, FlockOperation::NonBlockingLockExclusive));
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

    /// The last bytes, those behind the last whole page left out: direct I/O does not reach them, and neither do we.
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

    /// As its queue says; holes can be punched into a file of any of the file systems that do direct I/O.
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
        // A partition's queue is its disk's.
        of("").or_else(|| of("../")).and_then(NonZeroU32::new)
    }
}

fn in_memory(path: &Path) -> Option<PreparedError> {
    let directory = open_file(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let magic = fstatfs(&directory).ok()?.f_type as i64;
    memory_file_system(magic).map(|file_system| PreparedError::InMemory { file_system })
}

/// As what the system uses it now, for a message: mounted, the kernel's swap, behind a loop device.
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

/// A path as the kernel's tables have it: what would break a line is a backslash and three octal digits.
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

/// Page-aligned room.
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
        // SAFETY: aligned pages follow each other without gaps; at least so many bytes.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.bytes) }
    }
}

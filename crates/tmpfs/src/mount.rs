//! A mounted file system: the session with the kernel, its threads, and its end.

use crate::{
    attach::{attach, detach},
    kernel_cache::{Invalidate, KernelCache, KernelCacheStatistics},
    server::{Caching, Server},
    tmpfs::{Tmpfs, TmpfsOptions},
};
use folioswap_shmem::{HugePolicy, SetTiersError, ShmemSpace, SwapDevice};
use fuser::{Config, Session, SessionACL};
use rustix::io::Errno;
use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread::{Builder, JoinHandle},
};

/// The source in /proc/self/mountinfo, which identifies our mounts.
pub const SOURCE: &str = "folioswap";
/// The smallest memory limit that leaves enough for contents: see [`shares`].
pub const MEMORY_MIN: u64 = 32 << 20;
/// The buffers of a thread: a request of up to 1 MiB, and a joined answer.
const THREAD_MEMORY: u64 = 2 << 20;
/// The program, its heap and its stacks.
const FIXED_MEMORY: u64 = 4 << 20;
/// The smallest and largest bound of the kernel's page cache of the mount.
const PAGE_CACHE_MIN: u64 = 4 << 20;
const PAGE_CACHE_MAX: u64 = 256 << 20;

/// The options of a mount.
#[derive(Debug)]
pub struct MountOptions {
    /// The mount point, an existing directory.
    pub directory: PathBuf,
    /// The limit of daemon and page cache, in bytes; at least [`MEMORY_MIN`].
    pub memory: u64,
    /// The highest limit that may be set later. It costs addresses only.
    pub memory_max: u64,
    /// The most contents, in bytes.
    pub size: u64,
    /// The most inodes.
    pub inodes: u64,
    /// The folios in which contents come.
    pub huge: HugePolicy,
    /// The devices that contents are swapped out to.
    pub devices: Vec<SwapDevice>,
    /// The tiers that take pages at first: priorities with commas between them, or `all`.
    pub tiers: String,
    /// The permissions of the root directory.
    pub mode: u16,
    /// Whether reads and writes go through the page cache.
    pub caching: Caching,
}

/// The parts of a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The number of threads that serve requests.
    pub threads: usize,
    /// The bound of the kernel's page cache of the mount, in bytes.
    pub page_cache: u64,
    /// The limit of contents, compressed or not, and their tables, in bytes.
    pub contents: u64,
}

/// Divides a limit on a machine with so many processors. The threads' buffers and the program
/// itself come first; the kernel's page cache gets an eighth.
pub fn shares(memory: u64, processors: usize) -> Shares {
    let threads = (2 * processors).clamp(4, 16).min((memory / (16 << 20)).max(4) as usize);
    shares_with(memory, threads)
}

/// [`shares`] of a mount that has so many threads already.
pub(crate) fn shares_with(memory: u64, threads: usize) -> Shares {
    let page_cache = (memory / 8).clamp(PAGE_CACHE_MIN, PAGE_CACHE_MAX);
    let fixed = threads as u64 * THREAD_MEMORY + FIXED_MEMORY;
    Shares { threads, page_cache, contents: memory.saturating_sub(page_cache + fixed) }
}

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The space for contents could not be made.
    #[error(transparent)]
    Space(#[from] folioswap_shmem::CreateError),
    /// No device is in a tier that was named.
    #[error("tiers: {0}")]
    Tiers(SetTiersError),
    /// The machine has no FUSE.
    #[error(
        "/dev/fuse: {0}; load the module with `modprobe fuse`, or give the container the device (`--device /dev/fuse`)"
    )]
    NoFuse(io::Error),
    /// The process may not open /dev/fuse.
    #[error(
        "/dev/fuse: {0}; mount as root, or let everybody open it, as udev does by default: `chmod 666 /dev/fuse` (mounting is checked by fusermount3)"
    )]
    FuseForbidden(io::Error),
    /// The mount point could not be examined.
    #[error("{}: {source}", directory.display())]
    Directory {
        /// The directory as given.
        directory: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The kernel or fusermount3 refused the mount.
    #[error("mounting on {}: {source}{}", directory.display(), advice(source))]
    Mount {
        /// The mount point.
        directory: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("starting a thread: {0}")]
    Thread(io::Error),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "; without root, mounting takes fusermount3: install the package fuse3, or mount as root"
        }
        io::ErrorKind::PermissionDenied => "; mount as root, or on a directory of your own",
        _ => "",
    }
}

/// A mounted file system that is being served.
pub struct Mounted {
    tmpfs: Arc<Tmpfs>,
    cache: Arc<KernelCache>,
    number: Option<(u32, u32)>,
    session: JoinHandle<io::Result<()>>,
    invalidator: JoinHandle<()>,
}

/// Mounts, and serves from threads of its own.
///
/// # Errors
/// [`MountError`]; nothing is mounted then.
pub fn mount(options: MountOptions) -> Result<Mounted, MountError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let shares = shares(options.memory, processors);
    let space = ShmemSpace::new(folioswap_shmem::Options {
        limit: shares.contents,
        limit_max: shares_with(options.memory_max.max(options.memory), shares.threads).contents,
        size: Some(options.size),
        devices: options.devices,
    })?;
    space.set_tiers(&options.tiers).map_err(MountError::Tiers)?;
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => MountError::FuseForbidden(error),
        _ => MountError::NoFuse(error),
    })?;
    let directory = options.directory;
    // As with tmpfs, the root directory belongs to the user who mounts.
    let root_owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    fs::metadata(&directory)
        .map_err(|source| MountError::Directory { directory: directory.clone(), source })?;
    let cache = KernelCache::new(shares.page_cache, shares.threads);
    let made = TmpfsOptions {
        inodes_max: options.inodes,
        memory: options.memory,
        threads: shares.threads,
        size: options.size,
        huge: options.huge,
        root_permissions: options.mode,
        root_owner,
    };
    let tmpfs = Tmpfs::new(space, Arc::clone(&cache), made);
    let mut config = Config::default();
    config.n_threads = Some(shares.threads);
    config.clone_fd = true;
    let acl = if root_owner.0 == 0 { SessionACL::All } else { SessionACL::Owner };
    let kernel = Arc::new(OnceLock::new());
    let server = Server::new(Arc::clone(&tmpfs), options.caching, Arc::clone(&kernel));
    let failed = |source| MountError::Mount { directory: directory.clone(), source };
    let requests = attach(&directory, device).map_err(failed)?;
    let session = Session::from_fd(server, requests, acl, config).map_err(|source| {
        detach(&directory);
        failed(source)
    })?;
    let notifier = session.notifier();
    // The notifier is set before the first request, so that each request finds it.
    let _ = kernel.set(notifier.clone());
    let run = Arc::clone(&cache);
    let invalidator = Builder::new().name("invalidator".to_owned()).spawn(move || {
        let kernel: &dyn Invalidate = &notifier;
        run.run(kernel);
    });
    let no_thread = |error| {
        detach(&directory);
        MountError::Thread(error)
    };
    let invalidator = invalidator.map_err(no_thread)?;
    let session = Builder::new().name("session".to_owned()).spawn(move || session.run());
    let session = session.map_err(no_thread)?;
    // stat(2) is a request to the mount, so the mount must be served already.
    let number = rustix::fs::stat(&directory).ok();
    let number = number.map(|root| (rustix::fs::major(root.st_dev), rustix::fs::minor(root.st_dev)));
    if let Some(number) = number {
        read_far_ahead(number, shares.page_cache);
    }
    Ok(Mounted { tmpfs, cache, number, session, invalidator })
}

/// Whether a file system of this device number is mounted here.
fn is_mounted((major, minor): (u32, u32)) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let number = format!("{major}:{minor}");
    mounts.lines().any(|line| line.split(' ').nth(2) == Some(&number))
}

/// Lets the kernel read ahead a quarter of its page cache's bound, 1 to 4 MiB: requests of 1 MiB
/// for several threads at once, of which some decompress pages while others wait for a device. It
/// needs root; without it the kernel reads 128 KiB ahead.
fn read_far_ahead((major, minor): (u32, u32), page_cache: u64) {
    let ahead = (page_cache / 4).clamp(1 << 20, 4 << 20) >> 10;
    drop(fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), ahead.to_string()));
}

impl Mounted {
    /// Waits until the file system is unmounted and unused.
    ///
    /// # Errors
    /// The connection with the kernel broke.
    pub fn wait(self) -> io::Result<()> {
        let ended = self.session.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        self.cache.stop();
        self.tmpfs.control.stop();
        drop(self.invalidator.join());
        match ended {
            // The kernel answers so, instead of ENODEV, to a thread that has just taken a request
            // when the last use of the mount ends. An abort by the administrator gives the same
            // error, and leaves the mount.
            Err(error)
                if error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error())
                    && !self.number.is_some_and(is_mounted) =>
            {
                Ok(())
            }
            ended => ended,
        }
    }

    /// Returns the major and minor number of the mount's device, as in the third field of
    /// /proc/self/mountinfo. They distinguish it from another mount on the same directory. `None`:
    /// the mount was gone before it could be examined.
    pub fn number(&self) -> Option<(u32, u32)> {
        self.number
    }

    /// Returns the file system behind the mount.
    pub fn tmpfs(&self) -> &Arc<Tmpfs> {
        &self.tmpfs
    }

    /// Returns the counts of the bound on the kernel's page cache.
    pub fn kernel_cache(&self) -> KernelCacheStatistics {
        self.cache.statistics()
    }
}

#[cfg(test)]
mod tests;

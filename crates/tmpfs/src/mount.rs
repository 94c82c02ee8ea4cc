//! A mounted file system: the session with the kernel, its threads, and how it ends.

use crate::{
    attach::{attach, detach},
    kernel_cache::{Invalidate, KernelCache, KernelCacheStatistics},
    server::{Caching, Server},
    tmpfs::{Tmpfs, TmpfsOptions},
};
use folioswap_shmem::{HugePolicy, ShmemSpace, SwapDevice};
use fuser::{Config, Session, SessionACL};
use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread::{Builder, JoinHandle},
};

/// What stands as the source in /proc/self/mountinfo, by which our mounts are known.
pub const SOURCE: &str = "folioswap";
/// The smallest memory limit that leaves room for contents: see [`shares`].
pub const MEMORY_MIN: u64 = 32 << 20;
/// A thread's buffers: a request of up to 1 MiB, and an answer put together.
const THREAD_MEMORY: u64 = 2 << 20;
/// The program, its heap and its stacks.
const FIXED_MEMORY: u64 = 4 << 20;
/// The least and the most that the kernel's page cache of the mount may take.
const WINDOW_MIN: u64 = 4 << 20;
const WINDOW_MAX: u64 = 256 << 20;

/// What is to be mounted.
#[derive(Debug)]
pub struct MountOptions {
    /// Where. An existing directory.
    pub directory: PathBuf,
    /// Limit of daemon and page cache, in bytes; at least [`MEMORY_MIN`].
    pub memory: u64,
    /// The most contents, in bytes.
    pub size: u64,
    /// The most inodes.
    pub inodes: u64,
    /// In which folios contents come.
    pub huge: HugePolicy,
    /// Where contents go that leave memory.
    pub devices: Vec<SwapDevice>,
    /// Permissions of the root directory.
    pub mode: u16,
    /// Through the page cache, or past it.
    pub caching: Caching,
}

/// How a memory limit is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Threads that serve requests.
    pub threads: usize,
    /// For the kernel's page cache of the mount, in bytes.
    pub window: u64,
    /// For contents, compressed or not, and their tables, in bytes.
    pub contents: u64,
}

/// Shares a limit out on a machine with so many processors. The threads' buffers and the program itself come first; an eighth is for the
/// kernel's page cache.
pub fn shares(memory: u64, processors: usize) -> Shares {
    let threads = (2 * processors).clamp(4, 16).min((memory / (16 << 20)).max(4) as usize);
    let window = (memory / 8).clamp(WINDOW_MIN, WINDOW_MAX);
    let fixed = threads as u64 * THREAD_MEMORY + FIXED_MEMORY;
    Shares { threads, window, contents: memory.saturating_sub(window + fixed) }
}

/// Why nothing was mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The space for contents cannot be had.
    #[error(transparent)]
    Space(#[from] folioswap_shmem::CreateError),
    /// There is no FUSE here.
    #[error(
        "/dev/fuse: {0}; load the module with `modprobe fuse`, or give the container the device (`--device /dev/fuse`)"
    )]
    NoFuse(io::Error),
    /// There is, but not for us.
    #[error(
        "/dev/fuse: {0}; mount as root, or let everybody open it, as udev does by default: `chmod 666 /dev/fuse` (mounting is checked by fusermount3)"
    )]
    FuseForbidden(io::Error),
    /// The mount point cannot be looked at.
    #[error("{}: {source}", directory.display())]
    Directory {
        /// As given.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel or fusermount3 refused.
    #[error("mounting on {}: {source}{}", directory.display(), advice(source))]
    Mount {
        /// Where.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A thread cannot be had.
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

/// A mounted file system that is served.
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
        size: Some(options.size),
        devices: options.devices,
    })?;
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => MountError::FuseForbidden(error),
        _ => MountError::NoFuse(error),
    })?;
    let directory = options.directory;
    // As with tmpfs, the root belongs to who mounts.
    let root_owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    fs::metadata(&directory)
        .map_err(|source| MountError::Directory { directory: directory.clone(), source })?;
    let cache = KernelCache::new(shares.window, shares.threads);
    let made = TmpfsOptions {
        inodes_max: options.inodes,
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
    // Before the first request is served, so that each finds it.
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
    // Asks the mount for its number, so it must be served already.
    let number = rustix::fs::stat(&directory).ok();
    let number = number.map(|root| (rustix::fs::major(root.st_dev), rustix::fs::minor(root.st_dev)));
    if let Some(number) = number {
        read_far_ahead(number, shares.window);
    }
    Ok(Mounted { tmpfs, cache, number, session, invalidator })
}

/// Lets the kernel read ahead a quarter of its window, 1 to 4 MiB: requests of 1 MiB for several threads at once, of which some expand
/// pages while others wait for a device. Needs root; without it 128 KiB are read ahead.
fn read_far_ahead((major, minor): (u32, u32), window: u64) {
    let ahead = (window / 4).clamp(1 << 20, 4 << 20) >> 10;
    drop(fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), ahead.to_string()));
}

impl Mounted {
    /// Waits until it is unmounted and nobody uses it any more.
    ///
    /// # Errors
    /// The connection with the kernel broke.
    pub fn wait(self) -> io::Result<()> {
        let ended = self.session.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        self.cache.stop();
        self.tmpfs.control.stop();
        drop(self.invalidator.join());
        ended
    }

    /// Major and minor number of the mount's device, as the third field of /proc/self/mountinfo has them: what tells it from another
    /// mount on the same directory. `None` when it was gone before it could be asked.
    pub fn number(&self) -> Option<(u32, u32)> {
        self.number
    }

    /// The file system behind it.
    pub fn tmpfs(&self) -> &Arc<Tmpfs> {
        &self.tmpfs
    }

    /// What the kernel's page cache may hold of it, and what was taken back.
    pub fn kernel_cache(&self) -> KernelCacheStatistics {
        self.cache.statistics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_shared_out_twice() {
        for processors in [1, 2, 4, 64] {
            for memory in [MEMORY_MIN, 64 << 20, 1 << 30, 1 << 40] {
                let shares = shares(memory, processors);
                let fixed = shares.threads as u64 * THREAD_MEMORY + FIXED_MEMORY;
                assert_eq!(shares.contents + shares.window + fixed, memory);
                assert!(shares.contents >= memory / 4, "{memory}: {shares:?}");
                assert!(shares.threads >= 4);
            }
        }
    }
}

//! The extended attributes of the root that are no content: figures, the table of devices, and swapoff.
//!
//! | Name | Reading | Setting | Removing |
//! |---|---|---|---|
//! | `folioswap.stats` | figures, one a line | | |
//! | `folioswap.swaps` | the devices, as /proc/swaps has them | | |
//! | `folioswap.swapoff` | how the last swapoff stands: [`Swapoff`] | begins one, of the device that the value names | ends it |
//!
//! The kernel holds a lock of the directory while an attribute is set, so a swapoff goes on in a thread of its own, and who waits for it reads
//! the attribute again and again, for which nothing is locked.

use crate::tmpfs::Tmpfs;
use folioswap_shmem::SwapoffReport;
use rustix::io::Errno;
use std::{
    ffi::OsStr,
    fmt::Write,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{Builder, JoinHandle},
};

/// Figures.
const STATS: &[u8] = b"folioswap.stats";
/// The table of devices.
const SWAPS: &[u8] = b"folioswap.swaps";
/// See [`Swapoff`].
pub const SWAPOFF: &str = "folioswap.swapoff";

/// Is this attribute of the root one of those?
pub fn is_control(name: &[u8]) -> bool {
    [STATS, SWAPS, SWAPOFF.as_bytes()].contains(&name)
}

/// How a swapoff stands, and as text: `running`, `done PAGES LOST`, or `failed` and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapoff {
    /// It goes on.
    Running,
    /// The device is gone.
    Done {
        /// Pages that were read back or given up.
        pages: u64,
        /// Pages that could not be read.
        lost: u64,
    },
    /// The device is in use as before.
    Failed(String),
}

impl std::fmt::Display for Swapoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Swapoff::Running => f.write_str("running"),
            Swapoff::Done { pages, lost } => write!(f, "done {pages} {lost}"),
            Swapoff::Failed(why) => write!(f, "failed {why}"),
        }
    }
}

impl std::str::FromStr for Swapoff {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        match words.next() {
            Some("running") => Ok(Swapoff::Running),
            Some("done") => {
                let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or(());
                Ok(Swapoff::Done { pages: number()?, lost: number()? })
            }
            Some("failed") => {
                Ok(Swapoff::Failed(text.strip_prefix("failed ").unwrap_or_default().to_owned()))
            }
            _ => Err(()),
        }
    }
}

/// What the attributes are about.
#[derive(Default)]
pub struct Control(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Arc<Last>>,
    thread: Option<JoinHandle<()>>,
}

/// The last swapoff.
struct Last {
    cancelled: AtomicBool,
    now: Mutex<Swapoff>,
}

impl Last {
    fn now(&self) -> MutexGuard<'_, Swapoff> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// `ENODATA`: there was no swapoff.
    pub fn get(&self, tmpfs: &Tmpfs, name: &[u8]) -> Result<String, Errno> {
        match name {
            STATS => Ok(tmpfs.figures()),
            SWAPS => Ok(swaps(tmpfs)),
            _ => self.state().last.as_ref().map(|last| last.now().to_string()).ok_or(Errno::NODATA),
        }
    }

    /// Begins a swapoff.
    ///
    /// # Errors
    /// `EPERM`: neither root nor who mounted; `EOPNOTSUPP`: this one cannot be set; `EBUSY`: one is under way.
    pub fn set(&self, tmpfs: &Arc<Tmpfs>, uid: u32, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        may(tmpfs, uid, name)?;
        let mut state = self.state();
        if state.last.as_ref().is_some_and(|last| *last.now() == Swapoff::Running) {
            return Err(Errno::BUSY);
        }
        let last = Arc::new(Last { cancelled: AtomicBool::new(false), now: Mutex::new(Swapoff::Running) });
        let (own, space) = (Arc::clone(&last), Arc::clone(&tmpfs.space));
        let device = OsStr::from_bytes(value).to_owned();
        let work = move || {
            let go_on = || !own.cancelled.load(Relaxed);
            let result = match space.swapoff(Path::new(&device), go_on) {
                Ok(SwapoffReport { pages, lost, .. }) => Swapoff::Done { pages, lost },
                Err(error) => Swapoff::Failed(error.to_string()),
            };
            *own.now() = result;
        };
        state.thread = Some(Builder::new().name("swapoff".to_owned()).spawn(work).map_err(|_| Errno::AGAIN)?);
        state.last = Some(last);
        Ok(())
    }

    /// Ends the swapoff that is under way; how it ended can be read soon.
    ///
    /// # Errors
    /// As [`set`](Self::set); `ENODATA`: there was none.
    pub fn remove(&self, tmpfs: &Tmpfs, uid: u32, name: &[u8]) -> Result<(), Errno> {
        may(tmpfs, uid, name)?;
        self.state().last.as_ref().map(|last| last.cancelled.store(true, Relaxed)).ok_or(Errno::NODATA)
    }

    /// The mount is gone: nobody waits for a swapoff any more.
    pub fn stop(&self) {
        let mut state = self.state();
        if let Some(last) = &state.last {
            last.cancelled.store(true, Relaxed);
        }
        if let Some(thread) = state.thread.take() {
            drop(thread.join());
        }
    }
}

fn may(tmpfs: &Tmpfs, uid: u32, name: &[u8]) -> Result<(), Errno> {
    if name != SWAPOFF.as_bytes() {
        Err(Errno::OPNOTSUPP)
    } else if uid != 0 && uid != tmpfs.options.root_owner.0 {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

/// The devices in use, as /proc/swaps has them: sizes in KiB; what is no plain character of a name is escaped; a size of 0 where the device grows as
/// the limit lets it.
fn swaps(tmpfs: &Tmpfs) -> String {
    let mut table = "Filename\tType\tSize\tUsed\tPriority\n".to_owned();
    for device in tmpfs.space.devices().iter().filter(|device| !device.is_off) {
        for &byte in device.name.as_os_str().as_bytes() {
            match byte {
                b'!'..=b'[' | b']'..=b'~' => table.push(byte.into()),
                _ => _ = write!(table, "\\{byte:03o}"),
            }
        }
        let (kind, size, used) = (device.kind.name(), device.size.unwrap_or(0) >> 10, device.used >> 10);
        _ = writeln!(table, "\t{kind}\t{size}\t{used}\t{}", device.priority);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        for told in [
            Swapoff::Running,
            Swapoff::Done { pages: 17, lost: 2 },
            Swapoff::Failed("failed is no word of it".to_owned()),
        ] {
            assert_eq!(told.to_string().parse(), Ok(told));
        }
        for text in ["", "done", "done 1", "done one two", "else"] {
            assert_eq!(text.parse::<Swapoff>(), Err(()), "{text}");
        }
    }
}

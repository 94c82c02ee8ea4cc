//! The control attributes of the root: figures, the table of devices, and swapoff.
//!
//! | Name | Reading | Setting | Removing |
//! |---|---|---|---|
//! | `folioswap.stats` | figures, one a line | | |
//! | `folioswap.swaps` | the devices, in the format of /proc/swaps | | |
//! | `folioswap.memory` | the limit, and whether it is kept: [`Within`] | another limit | |
//! | `folioswap.size` | the most contents | another number | |
//! | `folioswap.tiers` | the priorities of the tiers that take pages | other tiers | |
//! | `folioswap.swapoff` | the last one's state: [`Swapoff`] | begins one, of a device | ends it |
//!
//! The kernel holds a lock of the directory while an attribute is set, so a swapoff runs in a
//! thread of its own. The process that waits for it polls the attribute, for which the kernel takes
//! no lock.

use crate::tmpfs::Tmpfs;
use folioswap_shmem::{SetTiersError, SwapoffReport};
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

/// The attribute of the figures.
const STATS: &[u8] = b"folioswap.stats";
/// The attribute of the table of devices.
const SWAPS: &[u8] = b"folioswap.swaps";
/// The attribute of the limit, in bytes. Reading it also says whether the mount is [`Within`] it.
pub const MEMORY: &str = "folioswap.memory";
/// The attribute of the most contents, in bytes.
pub const SIZE: &str = "folioswap.size";
/// The attribute of the tiers that take pages: priorities with commas between them, or `all`.
pub const TIERS: &str = "folioswap.tiers";
/// The attribute of a [`Swapoff`].
pub const SWAPOFF: &str = "folioswap.swapoff";

/// Returns whether this attribute of the root is a control attribute.
pub fn is_control(name: &[u8]) -> bool {
    [STATS, SWAPS, SWAPOFF.as_bytes(), MEMORY.as_bytes(), SIZE.as_bytes(), TIERS.as_bytes()].contains(&name)
}

/// Whether a mount is within its limit. As text: `within`, or `above`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// It is.
    Limit,
    /// Contents are still leaving.
    Above,
}

impl Within {
    /// The word of the attribute.
    pub const fn name(self) -> &'static str {
        match self {
            Within::Limit => "within",
            Within::Above => "above",
        }
    }
}

/// The state of a swapoff. As text: `running`, `done PAGES LOST`, or `failed` and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapoff {
    /// The swapoff is running.
    Running,
    /// The device is gone.
    Done {
        /// The pages that were read back or discarded.
        pages: u64,
        /// The pages that could not be read.
        lost: u64,
    },
    /// The device is in use as before. With the reason.
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

/// The text is no state of a swapoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the state of a swapoff")]
pub struct UnknownState;

impl std::str::FromStr for Swapoff {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let mut words = text.split(' ');
        match words.next() {
            Some("running") => Ok(Swapoff::Running),
            Some("done") => {
                let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or(UnknownState);
                Ok(Swapoff::Done { pages: number()?, lost: number()? })
            }
            Some("failed") => {
                Ok(Swapoff::Failed(text.strip_prefix("failed ").unwrap_or_default().to_owned()))
            }
            _ => Err(UnknownState),
        }
    }
}

/// The state behind the control attributes.
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

    /// Reads a control attribute.
    ///
    /// # Errors
    /// `ENODATA`: there was no swapoff.
    pub fn get(&self, tmpfs: &Tmpfs, name: &[u8]) -> Result<String, Errno> {
        match name {
            STATS => Ok(tmpfs.figures()),
            SWAPS => Ok(swaps(tmpfs)),
            name if name == MEMORY.as_bytes() => {
                let within = if tmpfs.space.help_within_limit() { Within::Limit } else { Within::Above };
                Ok(format!("{} {}", tmpfs.limit(), within.name()))
            }
            name if name == SIZE.as_bytes() => Ok(tmpfs.size().to_string()),
            name if name == TIERS.as_bytes() => {
                let tiers: Vec<String> = tmpfs.space.tiers().iter().map(i32::to_string).collect();
                Ok(tiers.join(","))
            }
            _ => self.state().last.as_ref().map(|last| last.now().to_string()).ok_or(Errno::NODATA),
        }
    }

    /// Begins a swapoff, or sets a limit or the tiers.
    ///
    /// # Errors
    /// `EINVAL`, `ERANGE`: the limit is no number, or not possible, or there is no such tier;
    /// `EPERM`: the caller is neither root nor the user who mounted; `EOPNOTSUPP`: the attribute
    /// cannot be set; `EBUSY`: a swapoff is running.
    pub fn set(&self, tmpfs: &Arc<Tmpfs>, uid: u32, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        may(tmpfs, uid, name)?;
        let number =
            || std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or(Errno::INVAL);
        if name == MEMORY.as_bytes() {
            return tmpfs.set_limit(number()?);
        }
        if name == SIZE.as_bytes() {
            return tmpfs.set_size(number()?);
        }
        if name == TIERS.as_bytes() {
            let list = std::str::from_utf8(value).map_err(|_| Errno::INVAL)?;
            return tmpfs.space.set_tiers(list).map_err(|error| match error {
                SetTiersError::Tiers(_) => Errno::INVAL,
                SetTiersError::Busy => Errno::BUSY,
            });
        }
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

    /// Ends the running swapoff. Its result can be read soon after.
    ///
    /// # Errors
    /// Those of [`set`](Self::set); `ENODATA`: there was no swapoff.
    pub fn remove(&self, tmpfs: &Tmpfs, uid: u32, name: &[u8]) -> Result<(), Errno> {
        if name != SWAPOFF.as_bytes() {
            return Err(Errno::OPNOTSUPP);
        }
        may(tmpfs, uid, name)?;
        self.state().last.as_ref().map(|last| last.cancelled.store(true, Relaxed)).ok_or(Errno::NODATA)
    }

    /// Ends the running swapoff and waits for its thread, when the mount has gone.
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
    if name == STATS || name == SWAPS {
        Err(Errno::OPNOTSUPP)
    } else if uid != 0 && uid != tmpfs.options.root_owner.0 {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

/// Returns the devices in use in the format of /proc/swaps: sizes in KiB, characters of a name
/// other than graphic ones escaped. A device that grows as the limit allows has a size of 0.
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
mod tests;

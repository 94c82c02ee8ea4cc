//! Mounts as they are at one moment, by their control attributes
//! (`folioswap_tmpfs`, `control.rs`).

use super::OperateError;
use crate::mount::mounts::{self, MountPoint};
use rustix::{fs::getxattr, io::Errno};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

/// The room for an answer, in bytes.
const ANSWER_MAX: usize = 64 << 10;
/// How long a daemon may take to answer; one that is stopped is passed over.
const PATIENCE: Duration = Duration::from_secs(1);

/// A mount at one moment.
#[derive(Clone, Debug)]
pub struct MountSnapshot {
    /// The directory that it is mounted on.
    pub directory: PathBuf,
    /// The user who mounted it.
    pub owner: u32,
    /// Its figures, in the order in which the daemon gives them.
    figures: Vec<(String, u64)>,
    /// Its table of devices, in the format of /proc/swaps.
    swaps: String,
    /// As [`MountSnapshot::tiers`].
    tiers: String,
}

impl MountSnapshot {
    /// Reads a mount.
    ///
    /// # Errors
    /// [`OperateError::Mount`]: the daemon does not answer, or may not be asked.
    pub fn read(point: &MountPoint) -> Result<Self, OperateError> {
        let failed = |reason: String| OperateError::Mount { directory: point.directory.clone(), reason };
        let asked = point.directory.clone();
        let ask_all = move || {
            let [stats, swaps] = ["folioswap.stats", "folioswap.swaps"].map(|name| ask(&asked, name));
            // The daemon of an earlier version has no tiers.
            Ok((stats?, swaps?, ask(&asked, folioswap_tmpfs::TIERS).unwrap_or_default()))
        };
        let (stats, swaps, tiers) = within_patience(&point.directory, ask_all)
            .ok_or_else(|| failed("its daemon is stopped, or hangs".to_owned()))?
            .map_err(|errno: Errno| failed(errno.to_string()))?;
        let row = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            Some((name.to_owned(), value.parse().ok()?)).filter(|_| name.chars().all(is_name))
        };
        let figures = stats.lines().filter_map(row).collect();
        Ok(MountSnapshot { directory: point.directory.clone(), owner: point.owner, figures, swaps, tiers })
    }

    /// A figure by its name; 0 for one that the daemon does not give.
    pub fn get(&self, name: &str) -> u64 {
        self.figures.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value)
    }

    /// The figures, in the daemon's order.
    pub fn figures(&self) -> &[(String, u64)] {
        &self.figures
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.get("memory")
    }

    /// What counts towards the limit now, in bytes: what the contents may take is known, and the
    /// rest of the limit belongs to the daemon's threads and the kernel's page cache.
    pub fn charge(&self) -> u64 {
        let fixed = self.limit().saturating_sub(self.get("memory_limit"));
        self.get("memory_used").saturating_add(fixed)
    }

    /// Contents that are out, compressed or on a device, in bytes.
    pub fn swapped(&self) -> u64 {
        self.get("stored").saturating_add(self.get("on_file"))
    }

    /// Uncompressed bytes per byte of the compressed store; `None` when nothing is stored.
    pub fn ratio(&self) -> Option<f64> {
        let (stored, store) = (self.get("stored"), self.get("store"));
        (stored > 0 && store > 0).then(|| stored as f64 / store as f64)
    }

    /// Its devices: name, type, size, used (bytes) and priority.
    pub fn devices(&self) -> Vec<(String, String, u64, u64, i64)> {
        let row = |line: &str| {
            let mut words = line.split('\t').map(|word| word.to_owned());
            let (name, kind) = (words.next()?, words.next()?);
            let mut kilobytes = || words.next()?.parse::<u64>().ok().map(|number| number << 10);
            let (size, used) = (kilobytes()?, kilobytes()?);
            Some((name, kind, size, used, words.next()?.parse().ok()?))
        };
        self.swaps.lines().skip(1).filter_map(row).collect()
    }

    /// The priorities of the tiers that take pages, with commas between them; empty where the
    /// daemon is one of an earlier version.
    pub fn tiers(&self) -> &str {
        &self.tiers
    }

    /// Whether devices of this priority take no new pages.
    fn is_masked(&self, priority: i64) -> bool {
        !self.tiers.is_empty() && !self.tiers.split(',').any(|tier| tier.parse() == Ok(priority))
    }

    /// The mount as JSON.
    pub fn json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let device = |(name, kind, size, used, prio): (String, String, u64, u64, i64)| json!({ "name": name, "type": kind, "size_bytes": size, "used_bytes": used, "prio": prio, "masked": self.is_masked(prio) });
        json!({
            "directory": self.directory.to_string_lossy(),
            "user": super::users::name(self.owner),
            "uid": self.owner,
            "limit_bytes": self.limit(),
            "charge_bytes": self.charge(),
            "size_bytes": self.get("content_max"),
            "content_bytes": self.get("content"),
            "swapped_bytes": self.swapped(),
            "ratio": self.ratio(),
            "devices": self.devices().into_iter().map(device).collect::<Vec<_>>(),
            "figures": figures,
        })
    }
}

/// All mounts that answer.
pub fn all() -> Vec<MountSnapshot> {
    mounts::ours().iter().filter_map(|point| MountSnapshot::read(point).ok()).collect()
}

/// The mounts that have been asked and have not answered.
static UNANSWERED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unanswered() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of `work`, which asks this mount, in a thread that is left behind when it takes too
/// long: a request to a daemon that is stopped has no end. As long as one is without an answer, the
/// mount is asked nothing more.
fn within_patience<T: Send + 'static>(
    directory: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if !unanswered().insert(directory.to_owned()) {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    let asked = directory.to_owned();
    let thread = thread::Builder::new().name("mount".to_owned()).spawn(move || {
        let answer = work();
        unanswered().remove(&asked);
        let _ = sender.send(answer);
    });
    if thread.is_err() {
        unanswered().remove(directory);
        return None;
    }
    receiver.recv_timeout(PATIENCE).ok()
}

/// Reads a control attribute as text.
///
/// # Errors
/// Of getxattr(2).
pub fn ask(directory: &Path, attribute: &str) -> Result<String, Errno> {
    let mut answer = vec![0; ANSWER_MAX];
    let length = getxattr(directory, attribute, &mut answer[..])?;
    answer.truncate(length);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests;

//! The costs of locks and steps, and the file that keeps them with the machine they belong to.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Costs in nanoseconds. [`calibrate`](super::calibrate) measures them; none is fitted to a result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Taking and dropping a lock whose line is in the CPU's own cache.
    pub lock_ns: f64,
    /// What it costs more if another CPU held the lock last: the line moves.
    pub transfer_ns: f64,
    /// Moving a cluster between lists, under the list lock.
    pub list_ns: f64,
    /// Looking at a range of slots that is in use, when a cluster is scanned.
    pub look_ns: f64,
    /// Taking a slot: looking at it, and writing its word.
    pub take_slot_ns: f64,
    /// Freeing a slot.
    pub free_slot_ns: f64,
    /// Giving a table to a cluster, and taking it away again.
    pub table_ns: f64,
    /// An allocation besides its lock, its slots and its lists.
    pub alloc_ns: f64,
    /// A free besides its lock and its slots.
    pub free_ns: f64,
    /// A page that leaves memory, besides the allocator: unmapping, compression.
    pub page_out_ns: f64,
    /// A page that comes back: the fault, decompression.
    pub page_in_ns: f64,
}

/// Whose code the costs of pages are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PagesBy {
    /// The running kernel's own swap to zram: `madvise(MADV_PAGEOUT)`, and faults.
    KernelZram,
    /// Codec and page faults of this process, because the kernel's swap could not be used. Without
    /// the kernel's reclaim.
    UserSpace,
}

/// Costs and the machine that they were measured on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostsFile {
    /// Processor model, number of processors, kernel.
    pub machine: String,
    /// Whose code the costs of pages are from.
    pub pages_by: PagesBy,
    /// The costs.
    pub costs: Costs,
}

/// Why there are no costs.
#[derive(Debug, thiserror::Error)]
pub enum CostsError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is none that `lab calibrate` writes.
    #[error("{}: {source}; `folioswap lab calibrate FILE` makes such a file", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// A cost is not a number of nanoseconds.
    #[error("{}: {name} must be 0 to a second in nanoseconds", path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// The cost.
        name: &'static str,
    },
}

impl Costs {
    /// The first cost that is none.
    fn out_of_range(&self) -> Option<&'static str> {
        let all = [
            ("lock_ns", self.lock_ns),
            ("transfer_ns", self.transfer_ns),
            ("list_ns", self.list_ns),
            ("look_ns", self.look_ns),
            ("take_slot_ns", self.take_slot_ns),
            ("free_slot_ns", self.free_slot_ns),
            ("table_ns", self.table_ns),
            ("alloc_ns", self.alloc_ns),
            ("free_ns", self.free_ns),
            ("page_out_ns", self.page_out_ns),
            ("page_in_ns", self.page_in_ns),
        ];
        all.into_iter().find(|(_, cost)| !(0.0..=1e9).contains(cost)).map(|(name, _)| name)
    }
}

impl CostsFile {
    /// The costs that come with folioswap, so that a run without calibration repeats anywhere.
    pub fn kept() -> CostsFile {
        serde_json::from_str(include_str!("kept.json")).expect("a test parses it")
    }

    /// Reads a file that [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// [`CostsError`].
    pub fn read(path: &Path) -> Result<CostsFile, CostsError> {
        let at = || path.to_owned();
        let text = std::fs::read_to_string(path).map_err(|source| CostsError::File { path: at(), source })?;
        let file: CostsFile =
            serde_json::from_str(&text).map_err(|source| CostsError::Json { path: at(), source })?;
        match file.costs.out_of_range() {
            Some(name) => Err(CostsError::Range { path: at(), name }),
            None => Ok(file),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`CostsError::File`].
    pub fn write(&self, path: &Path) -> Result<(), CostsError> {
        std::fs::write(path, self.json()).map_err(|source| CostsError::File { path: path.to_owned(), source })
    }

    /// The text of the file.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("finite numbers") + "\n"
    }
}

#[cfg(test)]
mod tests;

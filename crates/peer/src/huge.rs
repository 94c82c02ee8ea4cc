//! The kernel's settings of transparent huge pages, for a run. Put back on drop, also while unwinding; what a killed process left changed the next
//! one puts back.

use crate::Turn;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";
/// What was set before, while it is changed.
const NOTE: &str = "/run/folioswap-peer-huge";

/// Which folios the kernel makes of anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioSizes {
    /// Pages alone.
    Only4K,
    /// 64 KiB where it can.
    Only64K,
    /// 2 MiB where it can.
    Only2M,
    /// Of every size.
    All,
}

impl FolioSizes {
    /// Does it have folios of so many KiB?
    const fn includes(self, kib: u32) -> bool {
        match self {
            FolioSizes::Only4K => false,
            FolioSizes::Only64K => kib == 64,
            FolioSizes::Only2M => kib == 2048,
            FolioSizes::All => true,
        }
    }
}

/// Settings that are in force until it is dropped.
pub struct HugePages {
    before: Vec<(PathBuf, String)>,
    // Dropped last.
    _turn: Arc<Turn>,
}

impl HugePages {
    /// Lets the kernel make folios of these sizes, and defragment memory for them (`defrag=always`), as its own measurements have it.
    ///
    /// # Errors
    /// When the kernel has no such settings or we may not.
    pub fn set(turn: &Arc<Turn>, sizes: FolioSizes) -> io::Result<HugePages> {
        let root = Path::new(SETTINGS);
        let mut files = vec![root.join("enabled"), root.join("defrag")];
        for entry in fs::read_dir(root)?.flatten() {
            let file = entry.path().join("enabled");
            // Some sizes are for shared memory only.
            if kib_of(&entry.path()).is_some() && file.exists() {
                files.push(file);
            }
        }
        let mut before = Vec::new();
        for file in files {
            if let Some(word) = chosen(&fs::read_to_string(&file)?) {
                before.push((file, word.to_owned()));
            }
        }
        let lines: String =
            before.iter().map(|(file, word)| format!("{} {word}\n", file.display())).collect();
        fs::write(NOTE, format!("{}\n{lines}", std::process::id()))?;
        let settings = HugePages { before, _turn: Arc::clone(turn) };
        for (file, _) in &settings.before {
            let word = match (file.file_name().and_then(|name| name.to_str()), kib_of_parent(file)) {
                (_, Some(kib)) if sizes.includes(kib) => "always",
                (_, Some(_)) => "never",
                (Some("defrag"), None) => "always",
                _ if sizes == FolioSizes::Only4K => "never",
                _ => "madvise",
            };
            fs::write(file, word)?;
        }
        Ok(settings)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        for (file, word) in &self.before {
            drop(fs::write(file, word));
        }
        drop(fs::remove_file(NOTE));
    }
}

/// Puts back what a process that is gone has left changed. Context: the turn is ours.
pub(crate) fn restore_stale() {
    let Ok(text) = fs::read_to_string(NOTE) else { return };
    let mut lines = text.lines();
    if lines.next().is_none_or(|pid| Path::new("/proc").join(pid).exists()) {
        return;
    }
    for (file, word) in lines.filter_map(|line| line.split_once(' ')) {
        if file.starts_with(SETTINGS) {
            drop(fs::write(file, word));
        }
    }
    drop(fs::remove_file(NOTE));
}

/// The chosen word of a setting like `always [madvise] never`.
pub fn chosen(setting: &str) -> Option<&str> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

/// KiB of a directory like `hugepages-64kB`.
fn kib_of(directory: &Path) -> Option<u32> {
    directory.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
}

fn kib_of_parent(file: &Path) -> Option<u32> {
    file.parent().and_then(kib_of)
}

#[cfg(test)]
mod tests;

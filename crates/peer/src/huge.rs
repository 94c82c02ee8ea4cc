//! The kernel's settings of transparent huge pages during a run. They are restored on drop, also
//! while unwinding; settings that a killed process left changed are restored by the next one.

use crate::SwapLock;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";
/// The file that holds the settings from before while they are changed.
const NOTE: &str = "/run/folioswap-peer-huge";

/// The folio sizes that the kernel may use for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioSizes {
    /// Single pages only.
    Only4K,
    /// 64 KiB where possible.
    Only64K,
    /// 2 MiB where possible.
    Only2M,
    /// Every size.
    All,
}

impl FolioSizes {
    /// Whether folios of `kib` KiB are among the sizes.
    const fn includes(self, kib: u32) -> bool {
        match self {
            FolioSizes::Only4K => false,
            FolioSizes::Only64K => kib == 64,
            FolioSizes::Only2M => kib == 2048,
            FolioSizes::All => true,
        }
    }
}

/// Changed settings, restored on drop.
pub struct HugePages {
    before: Vec<(PathBuf, String)>,
    // Dropped last.
    _lock: Arc<SwapLock>,
}

impl HugePages {
    /// Allows folios of these sizes and lets the kernel defragment memory for them
    /// (`defrag=always`), as the kernel's own measurements do.
    ///
    /// # Errors
    /// The kernel has no such settings, or no permission.
    pub fn set(lock: &Arc<SwapLock>, sizes: FolioSizes) -> io::Result<HugePages> {
        let root = Path::new(SETTINGS);
        let mut files = vec![root.join("enabled"), root.join("defrag")];
        for entry in fs::read_dir(root)?.flatten() {
            let file = entry.path().join("enabled");
            // Some sizes exist for shared memory only.
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
        let settings = HugePages { before, _lock: Arc::clone(lock) };
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

/// Restores the settings that a process that is gone left changed. Context: the caller holds the
/// [`SwapLock`].
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

/// The chosen word of a setting such as `always [madvise] never`.
pub fn chosen(setting: &str) -> Option<&str> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

/// The size in KiB of a directory such as `hugepages-64kB`.
fn kib_of(directory: &Path) -> Option<u32> {
    directory.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
}

fn kib_of_parent(file: &Path) -> Option<u32> {
    file.parent().and_then(kib_of)
}

#[cfg(test)]
mod tests;

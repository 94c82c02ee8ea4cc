//! Folios swapped out and in whole, and those that fell back to smaller ones, by size: the kernel's
//! counters, and ours of the same names.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// The directory of the kernel's counters.
const KERNEL: &str = "/sys/kernel/mm/transparent_hugepage";

/// The counts of one folio size over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FolioCounts {
    /// The size, KiB.
    pub kib: u32,
    /// Written out whole.
    pub swpout: u64,
    /// Split, because no slots were found for the folio.
    pub swpout_fallback: u64,
    /// Brought back whole.
    pub swpin: u64,
    /// Came back smaller than they should have.
    pub swpin_fallback: u64,
}

impl FolioCounts {
    fn read(kib: u32, counter: impl Fn(&str) -> Option<u64>) -> FolioCounts {
        let of = |name| counter(name).unwrap_or(0);
        FolioCounts {
            kib,
            swpout: of("swpout"),
            swpout_fallback: of("swpout_fallback"),
            swpin: of("swpin"),
            swpin_fallback: of("swpin_fallback"),
        }
    }

    const fn since(self, before: FolioCounts) -> FolioCounts {
        FolioCounts {
            kib: self.kib,
            swpout: self.swpout.saturating_sub(before.swpout),
            swpout_fallback: self.swpout_fallback.saturating_sub(before.swpout_fallback),
            swpin: self.swpin.saturating_sub(before.swpin),
            swpin_fallback: self.swpin_fallback.saturating_sub(before.swpin_fallback),
        }
    }

    /// How often this size was tried, out or in.
    pub const fn asked(self) -> u64 {
        self.swpout + self.swpout_fallback + self.swpin + self.swpin_fallback
    }
}

/// Reads the kernel's counters of the whole machine since boot, the smallest size first. Counters
/// that this kernel lacks are 0.
pub fn kernel() -> Vec<FolioCounts> {
    let sizes = fs::read_dir(KERNEL).into_iter().flatten().flatten();
    let of = |directory: &Path| {
        let kib = kib_of(directory.file_name()?.to_str()?.strip_prefix("hugepages-")?)?;
        let counter =
            |name: &str| fs::read_to_string(directory.join("stats").join(name)).ok()?.trim().parse().ok();
        Some(FolioCounts::read(kib, counter))
    };
    sorted(sizes.filter_map(|entry| of(&entry.path())))
}

/// The kernel's counts since `before`, which an earlier call of [`kernel`] returned.
pub fn kernel_since(before: &[FolioCounts]) -> Vec<FolioCounts> {
    let earlier = |kib| before.iter().copied().find(|counts| counts.kib == kib).unwrap_or_default();
    kernel().into_iter().map(|counts| counts.since(earlier(counts.kib))).collect()
}

/// Reads the counts of a document of `folioswap run --stats-json`, the smallest size first.
pub fn of_statistics(document: &serde_json::Value) -> Vec<FolioCounts> {
    let sizes = document.get("sizes").and_then(serde_json::Value::as_object);
    let of = |(name, counts): (&String, &serde_json::Value)| {
        Some(FolioCounts::read(kib_of(name)?, |counter| counts.get(counter)?.as_u64()))
    };
    sorted(sizes.into_iter().flatten().filter_map(of))
}

/// The part (0 to 1) of all tries with more than a page, out or in, that fell back; `None` without
/// tries.
pub fn fallback(counts: &[FolioCounts]) -> Option<f64> {
    let large = || counts.iter().filter(|counts| counts.kib > 4);
    let asked: u64 = large().map(|counts| counts.asked()).sum();
    let fell: u64 = large().map(|counts| counts.swpout_fallback + counts.swpin_fallback).sum();
    (asked > 0).then(|| fell as f64 / asked as f64)
}

/// The size in a name such as `64kB`.
fn kib_of(name: &str) -> Option<u32> {
    name.strip_suffix("kB")?.parse().ok()
}

fn sorted(counts: impl Iterator<Item = FolioCounts>) -> Vec<FolioCounts> {
    let mut all: Vec<_> = counts.collect();
    all.sort_by_key(|counts| counts.kib);
    all
}

#[cfg(test)]
mod tests;

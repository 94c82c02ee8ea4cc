//! Figures, with zram's names (`/sys/block/zram0/mm_stat`).

use core::sync::atomic::Ordering::Relaxed;

use super::Zram;
use super::class::ClassId;
use crate::memory::PageMemory;
use crate::page::PAGE_SIZE;

/// The columns of `mm_stat`, in its order and with its units, and further figures that zram does
/// not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MmStat {
    /// Uncompressed size of the stored pages, in bytes; same-filled pages included.
    pub orig_data_size: u64,
    /// Compressed size of the stored pages, in bytes; headers and rounding not included.
    pub compr_data_size: u64,
    /// Memory with pages behind it, in bytes: objects, holes, empty reserve, metadata.
    pub mem_used_total: u64,
    /// The limit, in bytes; 0 for none.
    pub mem_limit: u64,
    /// The most that objects, holes and empty reserve ever used, in bytes.
    pub mem_used_max: u64,
    /// Pages that are one repeated word (zero included); nothing is stored for them.
    pub same_pages: u64,
    /// Pages freed by compaction.
    pub pages_compacted: u64,
    /// Pages stored uncompressed.
    pub huge_pages: u64,
    /// Pages that did not compress, kept or refused, since the store was made.
    pub huge_pages_since: u64,
    /// Objects stored.
    pub objects: u64,
    /// The part of `mem_used_total` that is descriptors, in bytes.
    pub metadata_bytes: u64,
    /// Empty spans whose memory is kept.
    pub empty_spans_resident: u64,
    /// Empty spans without memory.
    pub empty_spans_bare: u64,
}

impl<M: PageMemory> Zram<M> {
    /// [`MmStat::mem_used_total`] alone. Cost: a few ns.
    pub fn mem_used_total(&self) -> u64 {
        self.pool.used_pages() * PAGE_SIZE as u64 + self.directory.metadata_bytes() as u64
    }

    /// The current figures. Each is exact; together they are consistent only while no thread stores
    /// or frees. Takes no lock. Cost: about 100 ns.
    pub fn mm_stat(&self) -> MmStat {
        let (mut objects, mut stored_bytes) = (0, 0);
        for class in ClassId::all() {
            let counts = self.bin(class).counts();
            objects += counts.objects;
            stored_bytes += counts.stored_bytes;
        }
        let same_pages = self.same_pages.load(Relaxed);
        let metadata_bytes = self.directory.metadata_bytes() as u64;
        let (resident, bare) = self.pool.counts();
        MmStat {
            orig_data_size: (objects + same_pages) * PAGE_SIZE as u64,
            compr_data_size: stored_bytes,
            mem_used_total: self.mem_used_total(),
            mem_limit: self.options.mem_limit,
            mem_used_max: self.pool.used_pages_max() * PAGE_SIZE as u64,
            same_pages,
            pages_compacted: self.pages_compacted.load(Relaxed),
            huge_pages: self.huge_pages.load(Relaxed),
            huge_pages_since: self.huge_pages_since.load(Relaxed),
            objects,
            metadata_bytes,
            empty_spans_resident: u64::from(resident),
            empty_spans_bare: u64::from(bare),
        }
    }
}

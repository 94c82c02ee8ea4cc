//! The counters and gauges that every member publishes, under the kernel's names.
//!
//! Counters only grow; the supervisor adds those of a member that ended to the group's totals.
//! Gauges are the present state and vanish with the member.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of folio orders that are counted separately: 0 (4 KiB) to 9 (2 MiB).
pub const ORDERS: usize = 10;

/// The directory names of the sizes, as below `/sys/kernel/mm/transparent_hugepage/hugepages-*`.
pub const SIZE_NAMES: [&str; ORDERS] =
    ["4kB", "8kB", "16kB", "32kB", "64kB", "128kB", "256kB", "512kB", "1024kB", "2048kB"];

macro_rules! named {
    ($(#[$doc:meta])* $kind:ident, $count:ident, $all:ident { $($(#[$item_doc:meta])* $item:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $kind { $($(#[$item_doc])* $item,)* }
        impl $kind {
            /// Every variant, in the order of its storage.
            pub const ALL: &'static [$kind] = &[$($kind::$item,)*];
            /// The name under which the figure is shown.
            pub const fn name(self) -> &'static str { match self { $($kind::$item => $name,)* } }
        }
        /// Number of variants.
        pub const $count: usize = $kind::ALL.len();
    };
}

named! {
    /// A figure that only grows. Pages are 4 KiB pages.
    Counter, COUNTERS, ALL_COUNTERS {
        /// Pages written out to swap.
        PagesOut = "pswpout",
        /// Pages read back from swap.
        PagesIn = "pswpin",
        /// Faults that had to read a device (decompression counts).
        MajorFaults = "pgmajfault",
        /// Faults served without reading a device: first touches of registered memory, and pages
        /// still in the swap cache.
        MinorFaults = "pgfault_minor",
        /// Pages scanned by the background evictor.
        ScannedBackground = "pgscan_kswapd",
        /// Pages evicted by the background evictor.
        StolenBackground = "pgsteal_kswapd",
        /// Pages compressed by a thread that waited for memory, instead of by the evictor.
        StolenDirect = "pgsteal_direct",
        /// Times that a fault had to wait for memory (direct reclaim).
        DirectReclaims = "allocstall",
        /// Pages that left without being written: they kept their stored copy when they came back,
        /// and did not change.
        StolenClean = "pgsteal_clean",
        /// Write faults on present pages that were write-protected.
        WriteProtectFaults = "pgfault_wp",
        /// Pages that were touched while they waited uncompressed, and went back as hot.
        Activated = "pgactivate",
        /// Pages that came back from a device after a known time away: their slot words had a
        /// shadow.
        WorkingsetRefault = "workingset_refault_anon",
        /// Those of them that belong to the working set: while they were away, no more pages were
        /// evicted or activated than are resident, not counting those that wait in staging.
        WorkingsetActivate = "workingset_activate_anon",
        /// Pages found in the swap cache at a fault.
        SwapCacheHits = "swap_cache_hits",
        /// Pages that could not be moved because they are pinned for I/O.
        Pinned = "pages_pinned",
        /// Pages that the kernel moved although it reported that it had not (`docs/races.md`, race
        /// 51).
        MovesMisreported = "moves_misreported",
        /// Pages shared after a fork that were taken by copy.
        Unshared = "pages_unshared",
        /// Pages whose stored bytes failed their checksum or could not be read; each was poisoned.
        Poisoned = "pages_poisoned",
        /// Reads of shared devices that failed at first and succeeded when repeated.
        ReadRetries = "device_read_retries",
        /// Writes that a shared device refused; their pages went elsewhere, and none is lost.
        WriteErrors = "device_write_errors",
        /// Idle pages of the compressed RAM device that were stored again with zstd, smaller
        /// (zram's `recompress`).
        PagesRecompressed = "pages_recompressed",
        /// Bytes that recompression has saved.
        RecompressSavedBytes = "recompress_saved_bytes",
        /// Idle pages that zstd does not make smaller by an eighth; they stay as they are.
        RecompressIncompressible = "recompress_incompressible",
        /// Pages that moved elsewhere because their device was taken out of use (swapoff).
        SwapoffPages = "swapoff_pages",
        /// Pages that were lost in a swapoff, because their device did not return them.
        SwapoffLost = "swapoff_lost",
        /// Pages written to files.
        FilePagesOut = "file_pswpout",
        /// Pages read from files.
        FilePagesIn = "file_pswpin",
        /// Reads from files that continued while other faults were served.
        FileReadsOverlapped = "file_reads_overlapped",
        /// Pages read ahead from slow devices around a fault, for a fault that may follow; they are
        /// in [`Counter::PagesIn`] as well.
        PagesReadAhead = "swap_ra",
        /// Faults that found their page read ahead.
        ReadAheadHits = "swap_ra_hit",
        /// Nanoseconds that faulting threads waited, from the reading of the fault to its
        /// resolution.
        FaultNanoseconds = "fault_wait_ns",
        /// Nanoseconds of CPU time of the pager threads.
        PagerNanoseconds = "pager_cpu_ns",
        /// Forks taken over by an engine of the child's own.
        Forks = "forks",
        /// Children made by a bare clone(2), served by their parent.
        RawForks = "raw_forks",
        /// Times that a member with pages in swap checked every invariant (`run --validate`).
        Validations = "validations",
        /// Invariants that did not hold.
        Violations = "violations",
    }
}

named! {
    /// A figure per folio order.
    SizeCounter, SIZE_COUNTERS, ALL_SIZE_COUNTERS {
        /// Folios of this order written out as a whole.
        SwapOut = "swpout",
        /// Folios of this order that had to be split because no slots were found, either for their
        /// entries or on their device.
        SwapOutFallback = "swpout_fallback",
        /// Folios of this order brought back as a whole.
        SwapIn = "swpin",
        /// Folios of this order that were requested with all pages away, and did not come back as a
        /// whole (docs/decisions/0010-order-follows-history.md).
        SwapInFallback = "swpin_fallback",
        /// Those of them for which the charge failed.
        SwapInFallbackCharge = "swpin_fallback_charge",
    }
}

named! {
    /// A present state, in bytes unless the name says otherwise.
    Gauge, GAUGES, ALL_GAUGES {
        /// Bytes of managed memory that are swapped out.
        Swapped = "swapped",
        /// Uncompressed bytes of the pages in the compressed RAM device (zram's mm_stat).
        OrigDataSize = "orig_data_size",
        /// Compressed bytes of the pages in the compressed RAM device.
        ComprDataSize = "compr_data_size",
        /// Memory that the compressed RAM device occupies.
        MemUsedTotal = "mem_used_total",
        /// The most memory that it may occupy; 0: it has no bound of its own.
        MemLimit = "mem_limit",
        /// Compressed bytes that it may take before its oldest pages go on to a slower device (as
        /// zswap's `max_pool_percent`); 0 where there is none.
        MaxPool = "max_pool_bytes",
        /// The most memory that it has occupied so far.
        MemUsedMax = "mem_used_max",
        /// Pages stored as zero or same-filled, without storage.
        SamePages = "same_pages",
        /// Pages of memory that compaction gave back since the store was made (a forked child
        /// continues its parent's figure).
        PagesCompacted = "pages_compacted",
        /// Pages stored uncompressed because they do not compress.
        HugePages = "huge_pages",
        /// Pages that did not compress since the store was made, kept or sent on to a file.
        HugePagesSince = "huge_pages_since",
        /// Bytes on shared devices.
        FileBytes = "file_bytes",
        /// Bytes of the engine's own tables that are resident.
        Metadata = "metadata",
        /// Bytes that wait in the staging area.
        Staging = "staging",
        /// Most bytes that may wait in staging: the length of the inactive list.
        Inactive = "inactive_target",
        /// Anonymous memory of the program.
        Resident = "resident",
        /// Memory that is resident and still has its stored copy (as SwapCached of /proc/meminfo).
        SwapCached = "swap_cached",
        /// Slots in use.
        SlotsUsed = "slots_used_pages",
    }
}

/// One member's figures. Written by that member alone, with relaxed order: figures never carry
/// synchronisation.
#[repr(C)]
pub struct Figures {
    counters: [AtomicU64; COUNTERS],
    sizes: [[AtomicU64; ORDERS]; SIZE_COUNTERS],
    gauges: [AtomicU64; GAUGES],
}

impl Figures {
    /// Adds `n` to a counter.
    pub fn add(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].fetch_add(n, Relaxed);
    }
    /// Adds `n` to the figure of one folio order (0..=9; larger orders are counted as 9).
    pub fn add_size(&self, counter: SizeCounter, order: usize, n: u64) {
        self.sizes[counter as usize][order.min(ORDERS - 1)].fetch_add(n, Relaxed);
    }
    /// Sets a gauge.
    pub fn set(&self, gauge: Gauge, value: u64) {
        self.gauges[gauge as usize].store(value, Relaxed);
    }
    /// Reads a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }
    /// Faults served so far, with a device and without. Cost: two loads.
    pub fn faults_served(&self) -> u64 {
        self.counter(Counter::MajorFaults).saturating_add(self.counter(Counter::MinorFaults))
    }
    /// Reads the figure of one order (0..=9; larger orders are counted as 9).
    pub fn size(&self, counter: SizeCounter, order: usize) -> u64 {
        self.sizes[counter as usize][order.min(ORDERS - 1)].load(Relaxed)
    }
    /// Reads a gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize].load(Relaxed)
    }
    /// Raises a counter to `value`, for counters that the system keeps.
    pub fn raise(&self, counter: Counter, value: u64) {
        self.counters[counter as usize].fetch_max(value, Relaxed);
    }
    /// Adds the counters of another member to these, which their caller alone writes. Gauges stay.
    /// A wrong figure may be any number, so sums saturate.
    pub fn add_counters(&self, other: &Figures) {
        let ours = self.counters.iter().chain(self.sizes.iter().flatten());
        let theirs = other.counters.iter().chain(other.sizes.iter().flatten());
        for (sum, figure) in ours.zip(theirs) {
            sum.store(sum.load(Relaxed).saturating_add(figure.load(Relaxed)), Relaxed);
        }
    }
    /// Sets everything to zero, for the next member that gets this entry.
    pub fn clear(&self) {
        for figure in self.counters.iter().chain(self.sizes.iter().flatten()).chain(&self.gauges) {
            figure.store(0, Relaxed);
        }
    }
}

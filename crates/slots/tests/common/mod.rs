//! An engine with its memory, and the operations that most tests need.
#![allow(dead_code)]

use folioswap_slots::*;
use folioswap_test_support::memory::Zeroed;

/// Payload size used by most tests: 8 bytes of location and 4 of checksum.
pub const PAYLOAD: usize = 12;
pub const FRAME: usize = Slots::<PAYLOAD>::FRAME_BYTES;

/// Waits for a lock by letting others run: for more real threads than CPUs.
pub struct Yield;
impl Relax for Yield {
    fn relax(_round: u32) {
        std::thread::yield_now();
    }
}

/// Every behaviour from before at once.
pub type Everything = CountLocks<BeforeClusterScan<BeforeSlotCacheRemoval<BeforeRoundRobin<FreePerSlot>>>>;

/// An engine with its memory.
pub struct Bench<P: Policy = Current> {
    pub slots: Slots<PAYLOAD, P>,
    pub metadata: Zeroed,
    pub frames: Zeroed,
}

impl<P: Policy> std::ops::Deref for Bench<P> {
    type Target = Slots<PAYLOAD, P>;
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

/// An engine with `frames` frames, 4 CPUs and room for 256 clusters.
pub fn engine(frames: usize) -> Bench {
    engine_with::<Current>(Config { cpus: 4, clusters_max: 256, frame_chunks_max: 8 }, frames)
}

pub fn engine_with<P: Policy>(config: Config, frames: usize) -> Bench<P> {
    let metadata = Zeroed::new(Slots::<PAYLOAD, P>::bytes_needed(config));
    let memory = Zeroed::new((frames * FRAME).max(4096));
    // SAFETY: fresh zeroed memory that lives beside the handle.
    let slots = unsafe {
        let slots = Slots::<PAYLOAD, P>::init(metadata.start(), metadata.bytes(), config).unwrap();
        if frames > 0 {
            assert_eq!(slots.add_frames(memory.start(), frames * FRAME).unwrap() as usize, frames);
        }
        slots
    };
    Bench { slots, metadata, frames: memory }
}

pub fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

pub const CPU0: LogicalCpu = LogicalCpu(0);
pub const CPU1: LogicalCpu = LogicalCpu(1);

/// Allocates a folio and checks alignment and words.
pub fn take<P: Policy>(slots: &Slots<PAYLOAD, P>, cpu: LogicalCpu, size: u32, folio: u32) -> SwapEntry {
    let entry = slots.alloc_folio(cpu, order(size), FolioId(folio), DeviceMask::ALL).unwrap();
    assert_eq!(entry.offset() % (1 << size), 0, "natural alignment");
    for step in 0..1 << size {
        let entry = entry.checked_add(step).unwrap();
        assert_eq!(slots.word(entry), SlotWord::Cached { folio: FolioId(folio), count: 1, zero: false });
    }
    entry
}

/// Ends the write-back, and frees the slots by their only count.
pub fn give<P: Policy>(slots: &Slots<PAYLOAD, P>, entry: SwapEntry, size: u32, folio: u32) {
    slots.cache_remove(entry, 1 << size, FolioId(folio), Shadow::EMPTY, |_, _| {}).unwrap();
    let put = slots.put(entry, 1 << size, |_, _| {}).unwrap();
    assert_eq!(put, Put { freed: 1 << size, only_cached: 0, rejected: 0 });
}

/// Takes the folio out of the swap cache; the counts stay.
pub fn uncache<P: Policy>(slots: &Slots<PAYLOAD, P>, entry: SwapEntry, size: u32, folio: u32) {
    slots.cache_remove(entry, 1 << size, FolioId(folio), Shadow::EMPTY, |_, _| {}).unwrap();
}

pub fn lists<P: Policy>(slots: &Slots<PAYLOAD, P>, device: DeviceId) -> DeviceLists {
    slots.device_lists(device).unwrap()
}

/// A plain device of `pages` pages.
pub fn plain<P: Policy>(slots: &Slots<PAYLOAD, P>, pages: u64) -> DeviceId {
    slots.swapon(DeviceSpec::new(pages)).unwrap()
}

/// Switches `count` plain devices of `pages` pages on.
pub fn add_devices<P: Policy>(slots: &Slots<PAYLOAD, P>, count: u32, pages: u64) {
    for _ in 0..count {
        slots.swapon(DeviceSpec::new(pages)).unwrap();
    }
}

//! Swap space: the bytes of swap entries. It joins the allocator's entries to the devices.
//!
//! An entry is a name. Its *location* (in the payload beside its slot word) says where the bytes
//! are: nowhere stored (zero or same-filled), in the compressed store, or in a slot of a shared
//! device (a file, or plain RAM). The entry stays valid when the bytes move.
//!
//! Context: the evictor allocates and writes entries; the fault handler and the reader of events
//! read and free them. Every caller has the entry's page word in a state that gives it the right to
//! (see [`folioswap_policy::page`]).
//!
//! | Module | Concept |
//! |---|---|
//! | `reading` | reading an entry's page, checked |
//! | `writing` | writing runs of pages to shared devices; bad slots |
//! | [`ages`] | generations of the pages in the compressed store |
//! | [`validate`] | the invariants, for tests |
//! | `error` | errors of single pages |

pub mod ages;
mod error;
mod reading;
pub mod validate;
mod writing;

pub(crate) use self::error::errno_of;
pub use self::error::{ReadError, WriteError, WriteFailure};
pub(crate) use self::reading::LastCipher;
pub use self::writing::{PARTS_MAX, WrittenRun};

use self::ages::Ages;
use crate::bounce::Bounce;
use crate::file_space::FileSpace;
use crate::keys::Keys;
use crate::shared_devices::SharedDevices;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use folioswap_devices::{
    FileSlot, IncompressiblePolicy, KeyNumber, Location, LocationCell, MmStat, Owner, Page, PageMemory,
    Place, Prefault, Scratch, StoreOptions, Stored, Zram,
};
use folioswap_policy::memory::Memory;
use folioswap_slots::{
    AllocError, Config, DeviceFlags, DeviceId, DeviceMask, DeviceSpec, FolioId, LogicalCpu, Order, Shadow,
    SlotWord, Slots, SwapEntry,
};
use folioswap_trace::{Event, Tracer};

/// The payload beside each slot word.
#[repr(C)]
pub(crate) struct Beside {
    pub(crate) location: LocationCell,
    pub(crate) check: AtomicU32,
    /// The page's [`Generation`](ages::Generation) while its bytes are in the compressed store. It
    /// is written with the location's lock held.
    age: AtomicU32,
}
const PAYLOAD: usize = size_of::<Beside>();
const _: () = assert!(PAYLOAD == 16);

/// Bytes of a cluster's frame.
const FRAME: usize = 4096 + 512 * PAYLOAD;
/// Frames are added this many at a time, when fewer than [`FRAMES_LOW`] are free.
const FRAMES_ADDED: usize = 16;
const FRAMES_LOW: u32 = 8;
/// Slots of the compressed RAM device: 128 GiB of pages. The device grows as needed within them; an
/// unused slot costs 0.08 byte.
const ZRAM_SLOTS: u64 = 32 << 20;
/// Memory of emptied spans that the store keeps for reuse, bytes.
pub const EMPTY_RESERVE: u64 = 1 << 20;

/// The destination of a written page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nothing needs to be stored.
    SameFilled,
    /// In the compressed store.
    Zram,
    /// On a shared device.
    Shared,
}

/// The threads that could move bytes during a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movers {
    /// A compactor may run: the location is locked for the reading.
    Running,
    /// All other threads are stopped and nothing may be changed: a fork takes its snapshot.
    Frozen,
}

/// Whether an entry's location was exchanged for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    Done,
    /// The entry was freed or its bytes have moved meanwhile, or its location is locked just now.
    Refused,
}

/// The engine's memory, as the store wants it.
pub(crate) struct StoreMemory<'m, M>(&'m M);

// SAFETY: every call is passed on to memory that keeps the contract.
unsafe impl<M: PageMemory> PageMemory for StoreMemory<'_, M> {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.0.map(bytes)
    }
    fn map_to_write(&self, bytes: usize) -> Option<(NonNull<u8>, Prefault)> {
        self.0.map_to_write(bytes)
    }
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller keeps the contract, which is passed on.
        unsafe { self.0.give_back(start, bytes) }
    }
    fn will_write(&self, start: NonNull<u8>, bytes: usize) -> Prefault {
        self.0.will_write(start, bytes)
    }
}

/// The system gave no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// The swap space of one process.
pub struct Space<'m, M: Memory + PageMemory> {
    slots: Slots<PAYLOAD>,
    device: DeviceId,
    pub(crate) zram: Zram<StoreMemory<'m, M>>,
    shared: SharedDevices,
    pub(crate) file_space: FileSpace,
    pub(crate) keys: Keys,
    pub(crate) bounce: Bounce,
    ages: Ages,
    memory: &'m M,
    frame_bytes: AtomicU64,
    /// Reads of shared devices that succeeded when tried again, since they were last taken.
    read_retries: AtomicU64,
    /// Reads of shared devices that failed since the last that did not.
    reads_failed: AtomicU32,
    /// The recorder of allocations; null: nothing is recorded.
    tracer: AtomicPtr<Tracer>,
}

impl<'m, M: Memory + PageMemory> Space<'m, M> {
    /// Creates an empty space with all its tables in `memory`; about 100 KiB become resident.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn create(memory: &'m M) -> Result<Self, NoMemory> {
        Self::create_for(memory, 1)
    }

    /// As [`create`](Self::create), for allocations on `cpus` logical CPUs at once
    /// ([`allocate_on`](Self::allocate_on)), each with a cluster of its own for each order.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn create_for(memory: &'m M, cpus: u32) -> Result<Self, NoMemory> {
        Self::create_of(memory, cpus, ZRAM_SLOTS)
    }

    /// As [`create_for`](Self::create_for), with this many slots (the first is the header's), for
    /// tests that reach the end of the space.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn create_of(memory: &'m M, cpus: u32, slots: u64) -> Result<Self, NoMemory> {
        let clusters_max = slots.div_ceil(512) as u32;
        let config = Config { cpus, clusters_max, frame_chunks_max: 8192 };
        let bytes = Slots::<PAYLOAD>::bytes_needed(config);
        let place = memory.take(bytes).ok_or(NoMemory)?;
        // SAFETY: fresh zeroed memory of the size asked for, page aligned, never given back.
        let words = unsafe { Slots::init(place, bytes, config) }.map_err(|_| NoMemory)?;
        let spec =
            DeviceSpec { priority: Some(1), flags: DeviceFlags::SYNCHRONOUS, ..DeviceSpec::new(slots) };
        let frames = memory.take(FRAME * FRAMES_ADDED).ok_or(NoMemory)?;
        // SAFETY: fresh zeroed memory of ours, never given back.
        unsafe { words.add_frames(frames, FRAME * FRAMES_ADDED) }.map_err(|_| NoMemory)?;
        let device = words.swapon(spec).map_err(|_| NoMemory)?;
        let files = memory.take(FileSpace::BYTES).ok_or(NoMemory)?;
        let keys = memory.take(Keys::BYTES).ok_or(NoMemory)?;
        let bounce = memory.take(Bounce::BYTES).ok_or(NoMemory)?;
        // Two threads store at once: the one that maps memory for the store meanwhile may have lost
        // its CPU.
        let relax = || rustix::thread::sched_yield();
        let options = StoreOptions { empty_reserve: EMPTY_RESERVE, relax, ..StoreOptions::DEFAULT };
        Ok(Space {
            slots: words,
            device,
            zram: Zram::new(StoreMemory(memory), options),
            shared: SharedDevices::new(),
            // SAFETY: fresh zeroed memory of the right size, never given back.
            file_space: unsafe { FileSpace::new(files) },
            // SAFETY: as above.
            keys: unsafe { Keys::new(keys) },
            // SAFETY: as above.
            bounce: unsafe { Bounce::new(bounce) },
            ages: Ages::default(),
            memory,
            frame_bytes: AtomicU64::new((FRAME * FRAMES_ADDED) as u64),
            read_retries: AtomicU64::new(0),
            reads_failed: AtomicU32::new(0),
            tracer: AtomicPtr::new(core::ptr::null_mut()),
        })
    }

    /// Ensures that the next allocations find their tables. The evictor calls this ahead of need,
    /// so that the path that frees memory does not need any.
    ///
    /// # Errors
    /// [`NoMemory`]: the system gives none; allocations go on until the frames are used up.
    pub fn reserve_frames(&self) -> Result<(), NoMemory> {
        if self.slots.frames_free() >= FRAMES_LOW {
            return Ok(());
        }
        let bytes = FRAME * FRAMES_ADDED;
        let chunk = self.memory.take(bytes).ok_or(NoMemory)?;
        // SAFETY: fresh zeroed memory of ours, never given back.
        unsafe { self.slots.add_frames(chunk, bytes) }.map_err(|_| NoMemory)?;
        self.frame_bytes.fetch_add(bytes as u64, Relaxed);
        Ok(())
    }

    /// Returns the devices that this process shares with its group.
    pub fn shared_devices(&self) -> &SharedDevices {
        &self.shared
    }
    /// Returns the clusters of the shared devices that this process owns.
    pub fn file_space(&self) -> &FileSpace {
        &self.file_space
    }
    /// Returns the keys of this process's pages on shared devices.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
    /// Returns the allocator, for figures and validation.
    pub fn slots(&self) -> &Slots<PAYLOAD> {
        &self.slots
    }
    /// Returns the compressed RAM device's figures.
    pub fn mm_stat(&self) -> MmStat {
        self.zram.mm_stat()
    }
    /// Returns the memory of the compressed RAM device alone, bytes. Cost: a few ns.
    pub fn store_bytes(&self) -> u64 {
        self.zram.mem_used_total()
    }
    /// Gives emptied spans of the store back to the system; returns the bytes.
    pub fn trim(&self) -> u64 {
        self.zram.trim()
    }
    /// Returns the bytes of tables that are resident, roughly.
    pub fn metadata_bytes(&self) -> u64 {
        self.frame_bytes.load(Relaxed)
    }

    /// Takes 2^`order` slots for `folio`. They are cached with count one, and have no location yet.
    ///
    /// # Errors
    /// The allocator's.
    pub fn allocate(&self, order: Order, folio: FolioId) -> Result<SwapEntry, AllocError> {
        self.allocate_on(LogicalCpu(0), order, folio)
    }

    /// As [`allocate`](Self::allocate), from the cluster that this CPU drains. Any number of
    /// threads may call it.
    ///
    /// # Errors
    /// The allocator's.
    pub fn allocate_on(
        &self,
        cpu: LogicalCpu,
        order: Order,
        folio: FolioId,
    ) -> Result<SwapEntry, AllocError> {
        let outcome = self.slots.alloc_folio(cpu, order, folio, DeviceMask::only(self.device));
        match outcome {
            Ok(entry) => {
                self.trace(|cpu| Event::Alloc { cpu, order: order.index() as u8, entry: entry.to_raw() })
            }
            Err(AllocError::SplitAndRetry) => {
                self.trace(|cpu| Event::Fallback { cpu, order: order.index() as u8 });
            }
            Err(_) => {}
        }
        outcome
    }

    /// Records allocations and frees from now on; `None`: no more.
    ///
    /// A recorder must stay in place until then, and until the threads that were at work are done:
    /// the pager sets it before its threads begin.
    pub fn set_tracer(&self, tracer: Option<NonNull<Tracer>>) {
        self.tracer.store(tracer.map_or(core::ptr::null_mut(), NonNull::as_ptr), Release);
    }

    fn trace(&self, event: impl FnOnce(u16) -> Event) {
        // SAFETY: null, or a recorder that stays (see `set_tracer`).
        if let Some(tracer) = unsafe { self.tracer.load(Acquire).as_ref() } {
            tracer.record(event);
        }
    }

    fn trace_free(&self, entry: SwapEntry) {
        self.trace(|cpu| Event::Free { cpu, slots: 1, entry: entry.to_raw() });
    }

    /// Records that the page of this entry came back and keeps its stored copy. The call must come
    /// before any thread may drop the copy.
    pub fn note_kept(&self, entry: SwapEntry) {
        self.trace(|cpu| Event::Retain { cpu, slots: 1, entry: entry.to_raw() });
    }

    /// Records that the page of this entry left again unchanged: its stored copy stands for it.
    pub fn note_left_clean(&self, entry: SwapEntry) {
        self.trace(|cpu| Event::Reuse { cpu, slots: 1, entry: entry.to_raw() });
    }

    pub(crate) fn beside(&self, entry: SwapEntry) -> Option<&Beside> {
        // SAFETY: the payload of a used slot is 16 bytes that only this module interprets,
        // 8-aligned (frames are page aligned, 4096 + 16 i); all-zero is valid; it stays while the
        // slot is used, which the caller's right ensures.
        self.slots.payload(entry).map(|payload: NonNull<u8>| unsafe { payload.cast::<Beside>().as_ref() })
    }

    fn set_location(&self, entry: SwapEntry, place: Place) -> bool {
        let Some(beside) = self.beside(entry) else { return false };
        let (location, check) = place.pack();
        while beside.location.try_lock().is_none() {
            core::hint::spin_loop();
        }
        beside.check.store(check, Relaxed);
        if matches!(place, Place::Zram { .. }) {
            beside.age.store(self.ages.stored().raw(), Relaxed);
        }
        beside.location.unlock_with(location);
        true
    }

    /// Writes a page to the compressed store, and sets the entry's location.
    ///
    /// # Errors
    /// [`WriteError`]; the entry then has no location.
    pub fn write(
        &self,
        scratch: &mut Scratch,
        entry: SwapEntry,
        page: &Page,
        incompressible: IncompressiblePolicy,
    ) -> Result<(), WriteError> {
        let owner = Owner::new(entry.to_raw() & ((1 << Owner::BITS) - 1)).ok_or(WriteError::NoMemory)?;
        let place = match self.zram.store_with(scratch, page, owner, incompressible) {
            Ok(Stored::Zero) => Place::Zero,
            Ok(Stored::SameFilled { pattern }) => Place::SameFilled { pattern },
            Ok(Stored::Object { handle, len, codec, checksum }) => {
                Place::Zram { handle, len, codec, checksum }
            }
            Ok(Stored::Incompressible) => return Err(WriteError::Incompressible),
            Err(_) => return Err(WriteError::NoMemory),
        };
        self.set_location(entry, place);
        Ok(())
    }

    /// Returns the compressed RAM device, which every entry is on; its bytes may be on another one.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Puts an entry whose bytes are stored into the swap cache: its page is in `folio` from now
    /// on. Returns false if it cannot be; then nothing is changed.
    pub fn enter_cache(&self, entry: SwapEntry, folio: FolioId) -> bool {
        self.slots.cache_insert(entry, Order::ZERO, folio).is_ok()
    }

    /// Takes these slots out of the swap cache, because their write-back is complete. Their slot
    /// words keep `shadow` ([`workingset`](folioswap_policy::reclaim::workingset)).
    pub fn leave_cache(&self, entry: SwapEntry, slots: u32, shadow: Shadow) {
        if let SlotWord::Cached { folio, .. } = self.slots.word(entry) {
            let _ = self.slots.cache_remove(entry, slots, folio, shadow, |freed, payload| {
                self.trace_free(freed);
                // SAFETY: as in `put`.
                self.release(unsafe { &*payload.cast::<Beside>() });
            });
        }
    }

    /// Frees a folio that came back: it leaves the swap cache, one holder of each of its `slots`
    /// entries is gone, and entries without a holder are freed, stored bytes and all.
    ///
    /// This is [`leave_cache`](Self::leave_cache) and [`put`](Self::put) together, under one lock.
    pub fn free_folio(&self, entry: SwapEntry, slots: u32, folio: FolioId) {
        let _ = self.slots.free_folio(entry, slots, folio, |freed, payload| {
            self.trace_free(freed);
            // SAFETY: as in `put`.
            self.release(unsafe { &*payload.cast::<Beside>() });
        });
    }

    /// Returns the shadow that an entry's slot word keeps; [`Shadow::EMPTY`] while it is in the
    /// swap cache. Cost: two loads.
    pub fn shadow(&self, entry: SwapEntry) -> Shadow {
        match self.slots.word(entry) {
            SlotWord::Shadow { shadow, .. } => shadow,
            SlotWord::Free | SlotWord::Cached { .. } | SlotWord::Bad => Shadow::EMPTY,
        }
    }

    /// Whether an entry's bytes are in the compressed RAM device.
    pub fn is_in_zram(&self, entry: SwapEntry) -> bool {
        self.beside(entry).is_some_and(|beside| {
            matches!(
                Place::unpack(beside.location.get(), beside.check.load(Relaxed)),
                Some(Place::Zram { .. })
            )
        })
    }

    /// Returns the slot of a shared device in which an entry's bytes are, if they are there.
    pub fn file_slot(&self, entry: SwapEntry) -> Option<FileSlot> {
        let beside = self.beside(entry)?;
        match Place::unpack(beside.location.get(), beside.check.load(Relaxed)) {
            Some(Place::File { slot, .. }) => Some(slot),
            _ => None,
        }
    }

    /// Whether an entry's bytes are on this shared device.
    pub fn is_on_shared(&self, entry: SwapEntry, device: DeviceId) -> bool {
        self.file_slot(entry).is_some_and(|slot| self.shared.of_slot(slot) == Some(device))
    }

    /// Whether an entry's bytes are on a file or block device.
    pub fn is_on_file(&self, entry: SwapEntry) -> bool {
        self.file_slot(entry).is_some_and(|slot| self.shared.is_on_disk(slot))
    }

    /// Removes one holder of each of these entries. Entries without a holder are freed, stored
    /// bytes and all, as soon as they are out of the swap cache too.
    pub fn put(&self, entry: SwapEntry, slots: u32) {
        let _ = self.slots.put(entry, slots, |freed, payload| {
            // This runs under the cluster's lock, before the slot can be allocated again, so that
            // the records are in the order of events.
            self.trace_free(freed);
            // SAFETY: as in `beside`; the slot is being freed and no other thread refers to it.
            self.release(unsafe { &*payload.cast::<Beside>() });
        });
    }

    /// Gives up an entry whose write-back did not complete, or is not wanted: out of the cache,
    /// bytes and slot freed.
    pub fn abandon(&self, entry: SwapEntry) {
        self.leave_cache(entry, 1, Shadow::EMPTY);
        self.put(entry, 1);
    }

    fn release(&self, beside: &Beside) {
        let location = loop {
            match beside.location.try_lock() {
                Some(location) => break location,
                None => core::hint::spin_loop(),
            }
        };
        match Place::unpack(location, beside.check.load(Relaxed)) {
            Some(Place::Zram { handle, len, .. }) => {
                // SAFETY: the location, which named the object, is locked by us and set to none
                // below.
                let freed = unsafe { self.zram.free(handle, len) };
                debug_assert!(freed.is_ok());
                self.aged_out(beside);
            }
            Some(Place::Zero | Place::SameFilled { .. }) => self.zram.forget_same_filled(),
            Some(Place::File { slot, key, .. }) => self.free_slot(slot, key),
            Some(Place::None) | None => {}
        }
        beside.check.store(0, Relaxed);
        beside.location.unlock_with(Location::NONE);
    }

    /// Gives back a slot, and the hold of its page on its key.
    pub(crate) fn free_slot(&self, slot: FileSlot, key: KeyNumber) {
        self.file_space.free(slot);
        self.keys.put(key, 1);
    }

    /// Adds one holder to each of these entries, or to none.
    ///
    /// # Errors
    /// [`NoMemory`]: a count is at its end and no overflow table could be made.
    pub fn duplicate(&self, entry: SwapEntry, slots: u32) -> Result<(), NoMemory> {
        self.slots.dup(entry, slots).map_err(|_| NoMemory)
    }
}

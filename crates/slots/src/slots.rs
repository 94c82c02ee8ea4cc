//! The handle: a base pointer and the sizes behind it.

use crate::cluster::Cluster;
use crate::cpu::CpuState;
use crate::device::{Device, DeviceState};
use crate::entry::{DEVICES_MAX, DeviceId, DeviceMask, LogicalCpu, SwapEntry};
use crate::frames::{AddFramesError, FrameContent, Pool, Section, WORDS_BYTES};
use crate::layout::{Config, ConfigError, Header, Layout, MAGIC, METADATA_ALIGN};
use crate::order::CLUSTER_SLOTS;
use crate::policy::{Current, Policy};
use crate::sync::{Ordering, fence};
use crate::word::{COUNT_OVERFLOWED, SlotWord, Word, WordKind};
use crate::words::Words;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Slots of up to 32 swap devices, in memory supplied by the caller.
///
/// A small handle that may be copied freely. All copies are equally valid, and so is a forked
/// child's copy-on-write copy of the memory, provided that no operation was in flight. `PAYLOAD` is
/// the number of bytes per slot that the caller keeps beside the slot words, and `P` the
/// [`Policy`].
///
/// ```
/// use folioswap_slots::*;
/// use std::{alloc, ptr::NonNull};
/// type Swap = Slots<12>;
/// let config = Config { cpus: 2, clusters_max: 16, frame_chunks_max: 4 };
/// # let zeroed = |bytes: usize| unsafe {
/// #     let layout = alloc::Layout::from_size_align(bytes, 4096).unwrap();
/// #     NonNull::new(alloc::alloc_zeroed(layout)).unwrap()
/// # };
/// // `zeroed` stands for an anonymous mapping.
/// let memory = zeroed(Swap::bytes_needed(config));
/// let swap = unsafe { Swap::init(memory, Swap::bytes_needed(config), config)? };
/// unsafe { swap.add_frames(zeroed(1 << 20), 1 << 20)? };
/// let device = swap.swapon(DeviceSpec::new(4096))?;
///
/// let order = Order::new(4).unwrap();
/// let entry = swap.alloc_folio(LogicalCpu(0), order, FolioId(7), DeviceMask::ALL)?;
/// assert_eq!(entry.offset() % 16, 0);
/// assert_eq!(swap.word(entry), SlotWord::Cached { folio: FolioId(7), count: 1, zero: false });
/// swap.cache_remove(entry, 16, FolioId(7), Shadow::EMPTY, |_, _| {})?;
/// let put = swap.put(entry, 16, |_, _| {})?;
/// assert_eq!(put.freed, 16);
/// assert_eq!(swap.device_info(device).unwrap().inuse, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Slots<const PAYLOAD: usize, P: Policy = Current> {
    base: NonNull<u8>,
    devices: NonNull<Device>,
    clusters: NonNull<Cluster>,
    cpus: NonNull<CpuState>,
    sections: NonNull<Section>,
    /// The part for policies with state of their own; the end of the memory for the others.
    pub(crate) variant: NonNull<u8>,
    config: Config,
    policy: PhantomData<fn() -> P>,
}

impl<const PAYLOAD: usize, P: Policy> Clone for Slots<PAYLOAD, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const PAYLOAD: usize, P: Policy> Copy for Slots<PAYLOAD, P> {}

// SAFETY: everything behind the pointers is atomic, or guarded by locks that live in the same
// memory.
unsafe impl<const PAYLOAD: usize, P: Policy> Send for Slots<PAYLOAD, P> {}
// SAFETY: as for `Send`.
unsafe impl<const PAYLOAD: usize, P: Policy> Sync for Slots<PAYLOAD, P> {}

/// Why an entry names no slot of a device that is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryError {
    /// The device is not on.
    NoDevice,
    /// The range ends past the device's end, or is empty.
    OutOfRange,
}

impl core::fmt::Display for EntryError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            EntryError::NoDevice => "no such swap device",
            EntryError::OutOfRange => "swap entry out of range",
        })
    }
}

impl core::error::Error for EntryError {}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Bytes of a frame: the slot words and the payload of one used cluster.
    pub const FRAME_BYTES: usize = WORDS_BYTES + CLUSTER_SLOTS as usize * PAYLOAD;

    /// Bytes of metadata memory for `config`: 40 per cluster plus a fixed part per device and
    /// logical CPU, and another one for policies with state of their own.
    pub const fn bytes_needed(config: Config) -> usize {
        Layout::new::<P>(config).bytes
    }

    /// Lays the metadata out. Cost: one cache line; the memory is taken as zero and not walked.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration or the memory does not fit.
    ///
    /// # Safety
    /// `memory` is zero (a fresh anonymous mapping), `bytes` long, valid for reads and writes as
    /// long as any copy of the handle, or of an [`attach`](Self::attach)ed one, is used, and used
    /// by nobody else.
    pub unsafe fn init(memory: NonNull<u8>, bytes: usize, config: Config) -> Result<Self, ConfigError> {
        if !config.is_valid() {
            return Err(ConfigError::InvalidConfig);
        }
        if !(memory.as_ptr() as usize).is_multiple_of(METADATA_ALIGN) {
            return Err(ConfigError::Misaligned);
        }
        if bytes < Self::bytes_needed(config) {
            return Err(ConfigError::MemoryTooSmall);
        }
        // SAFETY: size and alignment were checked; the caller vouches for the rest.
        let slots = unsafe { Self::over(memory, config) };
        let header = slots.header();
        header.cpus.store(config.cpus, Ordering::Relaxed);
        header.clusters_max.store(config.clusters_max, Ordering::Relaxed);
        header.frame_chunks_max.store(config.frame_chunks_max, Ordering::Relaxed);
        header.payload.store(PAYLOAD as u32, Ordering::Relaxed);
        header.bytes.store(Self::bytes_needed(config) as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(slots)
    }

    /// A handle over metadata that [`init`](Self::init) laid out before. The frames must lie where
    /// they lay then.
    ///
    /// # Errors
    /// [`ConfigError::NotInitialised`] if the memory holds no slots of this payload size, or of a
    /// policy with other state.
    ///
    /// # Safety
    /// As for [`init`](Self::init), except that the memory was laid out by it with the same
    /// `PAYLOAD` and policy.
    pub unsafe fn attach(memory: NonNull<u8>) -> Result<Self, ConfigError> {
        if !(memory.as_ptr() as usize).is_multiple_of(METADATA_ALIGN) {
            return Err(ConfigError::Misaligned);
        }
        // SAFETY: the caller vouches for a header's worth of memory.
        let header = unsafe { memory.cast::<Header>().as_ref() };
        if header.magic.load(Ordering::Acquire) != MAGIC
            || header.payload.load(Ordering::Relaxed) != PAYLOAD as u32
        {
            return Err(ConfigError::NotInitialised);
        }
        let config = Config {
            cpus: header.cpus.load(Ordering::Relaxed),
            clusters_max: header.clusters_max.load(Ordering::Relaxed),
            frame_chunks_max: header.frame_chunks_max.load(Ordering::Relaxed),
        };
        if header.bytes.load(Ordering::Relaxed) != Self::bytes_needed(config) as u64 {
            return Err(ConfigError::NotInitialised);
        }
        // SAFETY: `init` checked this configuration against this memory.
        Ok(unsafe { Self::over(memory, config) })
    }

    /// # Safety
    /// The memory is aligned and has the bytes that `config` needs.
    unsafe fn over(memory: NonNull<u8>, config: Config) -> Self {
        let layout = Layout::new::<P>(config);
        // SAFETY: all offsets lie inside the memory, which the caller vouches for.
        unsafe {
            Slots {
                base: memory,
                devices: memory.add(layout.devices).cast(),
                clusters: memory.add(layout.clusters).cast(),
                cpus: memory.add(layout.cpus).cast(),
                sections: memory.add(layout.sections).cast(),
                variant: memory.add(layout.variant),
                config,
                policy: PhantomData,
            }
        }
    }

    /// The configuration given to [`init`](Self::init).
    pub fn config(&self) -> Config {
        self.config
    }

    /// Adds memory to the frame pool and returns the number of frames that fit, of
    /// [`FRAME_BYTES`](Self::FRAME_BYTES) each; up to 63 bytes are lost to alignment. Any thread
    /// may call it at any time.
    ///
    /// # Errors
    /// [`AddFramesError`]; the memory is then unused.
    ///
    /// # Safety
    /// The memory is zero, valid for reads and writes as long as any copy of the handle is used,
    /// and used by nobody else.
    pub unsafe fn add_frames(&self, memory: NonNull<u8>, bytes: usize) -> Result<u32, AddFramesError> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.pool().add(memory, bytes) }
    }

    /// Frames that no cluster has. Each cluster that comes into use takes one, and one more while
    /// it has counts above 14.
    #[inline]
    pub fn frames_free(&self) -> u32 {
        self.pool().free()
    }

    /// Frames ever added.
    pub fn frames_total(&self) -> u32 {
        self.pool().total()
    }

    /// Shows runs of adjacent idle frames that are not known to be zero, so that the caller can
    /// give their memory back in bulk. Shows at most `max_frames` frames and returns their number.
    /// Each run (address, bytes) is locked out of use during its call.
    ///
    /// The first 4096 bytes of every frame are zero already. The callback may write to the run;
    /// with [`FrameContent::Zeroed`] it promises that every byte reads as zero.
    pub fn take_idle_frames(
        &self,
        max_frames: u32,
        callback: impl FnMut(NonNull<u8>, usize) -> FrameContent,
    ) -> u32 {
        self.pool().take_idle(max_frames, callback)
    }

    /// State of a slot, read without a lock; [`SlotWord::Bad`] for entries outside any device.
    /// Cost: four loads.
    ///
    /// The state is stable while the caller holds a count or the cached folio's lock. With only a
    /// [device reference](Self::device_get) it may be outdated on return, but it is always a state
    /// that this very slot was in.
    pub fn word(&self, entry: SwapEntry) -> SlotWord {
        let Ok((_, cluster)) = self.locate(entry, 1) else { return SlotWord::Bad };
        let slot = entry.slot_in_cluster() as usize;
        loop {
            let generation = cluster.generation.load(Ordering::Acquire);
            let Some(frame) = NonNull::new(cluster.frame.load(Ordering::Acquire)) else {
                return SlotWord::Free;
            };
            let raw = &Words::of(frame)[slot];
            let word = Word::from_raw(raw.load(Ordering::Acquire));
            let mut overflow = 0;
            let mut matches = true;
            if word.count() == COUNT_OVERFLOWED && word.kind() != WordKind::Bad {
                if let number @ 1.. = cluster.overflow_number.load(Ordering::Acquire) {
                    overflow = Words::of(self.pool().memory(number))[slot].load(Ordering::Acquire);
                }
                matches = raw.load(Ordering::Acquire) == word.raw();
            }
            fence(Ordering::Acquire);
            // A table that left the cluster in between may already hold another cluster's words.
            if cluster.generation.load(Ordering::Relaxed) == generation && matches {
                return word.decode(overflow);
            }
        }
    }

    /// The caller's `PAYLOAD` bytes of a slot, without a lock; `None` if the cluster is free or the
    /// entry names no slot.
    ///
    /// The bytes stay valid while any slot in the entry's cluster is used, so at least while the
    /// caller holds a count or the cached folio. They are zero when the cluster comes into use, and
    /// otherwise as the slot's last owner left them.
    #[inline]
    pub fn payload(&self, entry: SwapEntry) -> Option<NonNull<u8>> {
        let (_, cluster) = self.locate(entry, 1).ok()?;
        let frame = NonNull::new(cluster.frame.load(Ordering::Acquire))?;
        Some(Self::payload_in(frame, entry.slot_in_cluster()))
    }

    /// Devices that are on, swapoff in progress included.
    pub fn devices(&self) -> DeviceMask {
        DeviceMask::from_bits(self.header().devices_on.load(Ordering::Acquire))
    }

    /// Free slots of all writable devices together (`nr_swap_pages`). Cost: one load or two per
    /// device.
    pub fn free_slots(&self) -> u64 {
        let (free, _) = self.free_and_total(DeviceMask::ALL);
        free
    }

    /// Whether more than half of the slots of all writable devices is used (spec §0,
    /// `vm_swap_full`).
    pub fn vm_swap_full(&self) -> bool {
        let (free, total) = self.free_and_total(DeviceMask::ALL);
        free * 2 < total
    }

    /// The tiers, from the first to be used on: one for each priority, with the devices that are on
    /// at it. A group's mask is a union of some.
    pub fn tiers(&self) -> impl Iterator<Item = (i32, DeviceMask)> {
        let mut left = self.devices();
        core::iter::from_fn(move || {
            let priority = |id: DeviceId| self.device(id).priority();
            let first = left.iter().map(priority).max()?;
            let of_tier = left.iter().filter(|id| priority(*id) == first);
            let tier = of_tier.fold(DeviceMask::NONE, DeviceMask::with);
            left = left.minus(tier);
            Some((first, tier))
        })
    }

    pub(crate) fn free_and_total(&self, mask: DeviceMask) -> (u64, u64) {
        let mut free = 0;
        let mut total = 0;
        for id in self.devices().iter().filter(|id| mask.contains(*id)) {
            let device = self.device(id);
            if device.is_writable() {
                total += device.pages();
                free += device.pages().saturating_sub(device.usage().inuse());
            }
        }
        (free, total)
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header is the first part of the metadata; zeroed memory is a valid header;
        // all fields are atomic.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    #[inline]
    pub(crate) fn device(&self, id: DeviceId) -> &Device {
        const { assert!(DEVICES_MAX == 32) };
        // SAFETY: a device number is below 32 and the metadata has 32 devices; zeroed memory is a
        // valid one.
        unsafe { self.devices.add(id.index()).as_ref() }
    }

    /// The descriptor of cluster `index` of the device.
    #[inline]
    pub(crate) fn cluster(&self, device: &Device, index: u32) -> &Cluster {
        let reserved = device.clusters_reserved.load(Ordering::Relaxed);
        let number = device.first_cluster.load(Ordering::Relaxed) as usize + spread(index, reserved) as usize;
        assert!(number < self.config.clusters_max as usize, "cluster outside the metadata");
        // SAFETY: just checked; zeroed memory is a valid descriptor.
        unsafe { self.clusters.add(number).as_ref() }
    }

    #[inline]
    pub(crate) fn cpu(&self, cpu: LogicalCpu) -> &CpuState {
        let index = if cpu.0 < self.config.cpus { cpu.0 } else { cpu.0 % self.config.cpus };
        // SAFETY: below the number of logical CPUs; zeroed memory is a valid state.
        unsafe { self.cpus.add(index as usize).as_ref() }
    }

    pub(crate) fn cpus(&self) -> impl Iterator<Item = &CpuState> {
        (0..self.config.cpus).map(|index| self.cpu(LogicalCpu(index)))
    }

    #[inline]
    pub(crate) fn pool(&self) -> Pool<'_> {
        // SAFETY: the metadata has this many sections; zeroed memory is a valid section.
        let sections = unsafe {
            core::slice::from_raw_parts(self.sections.as_ptr(), self.config.frame_chunks_max as usize)
        };
        Pool { header: &self.header().pool, sections, frame_bytes: Self::FRAME_BYTES }
    }

    /// Device and cluster of `entry`, after a check that `slots` slots from it on lie in the
    /// device.
    #[inline]
    pub(crate) fn locate(&self, entry: SwapEntry, slots: u32) -> Result<(&Device, &Cluster), EntryError> {
        let device = self.device(entry.device());
        let max = device.max();
        if slots == 0 || entry.offset() + u64::from(slots) > max {
            let off = device.state() == DeviceState::Off;
            return Err(if off { EntryError::NoDevice } else { EntryError::OutOfRange });
        }
        Ok((device, self.cluster(device, entry.cluster() as u32)))
    }

    #[inline]
    pub(crate) fn payload_in(frame: NonNull<u8>, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < CLUSTER_SLOTS);
        // SAFETY: the frame has `PAYLOAD` bytes per slot behind its words.
        unsafe { frame.add(WORDS_BYTES + slot as usize * PAYLOAD) }
    }
}

/// Index of cluster `index` among the `reserved` descriptors of its device.
///
/// A descriptor is smaller than a cache line. Clusters that lie close together are in use at the
/// same time, by different CPUs, so their descriptors lie apart: neighbours by 320 bytes, and those
/// that share a line belong to clusters 64 apart (8 in the last, broken block). Each whole block is
/// a table with 8 columns, written by columns and read by rows.
#[inline]
const fn spread(index: u32, reserved: u32) -> u32 {
    if index | 511 < reserved {
        index & !511 | (index & 63) << 3 | index >> 6 & 7
    } else if index | 63 < reserved {
        index & !63 | (index & 7) << 3 | index >> 3 & 7
    } else {
        index
    }
}

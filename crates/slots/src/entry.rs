//! Swap entry and the other indices that callers hold.
//!
//! ```text
//! 63      56 55    51 50                                0
//! |  zero   | device |            slot offset           |
//! ```
//! The top eight bits are the holder's to use (a page table, an index of a shmem object). Offset 0
//! of every device is its header slot, so no valid entry has offset 0, and the raw value 0 is never
//! valid.

use crate::order::{CLUSTER_SLOTS, Order};
use core::num::NonZeroU64;

/// Devices that can be on at the same time.
pub const DEVICES_MAX: usize = 32;

const DEVICE_SHIFT: u32 = 51;
const OFFSET_MASK: u64 = (1 << DEVICE_SHIFT) - 1;
const ENTRY_BITS: u32 = 56;

/// Device number ("swap type"), 0 to 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(u8);

impl DeviceId {
    /// The device number `index`; `None` from 32 upwards.
    pub const fn new(index: u32) -> Option<DeviceId> {
        if index < DEVICES_MAX as u32 { Some(DeviceId(index as u8)) } else { None }
    }

    /// As an array index, 0 to 31.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Set of devices: the swap devices that a memory group may use (spec §6, swap tiers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceMask(u32);

impl DeviceMask {
    /// Every device.
    pub const ALL: DeviceMask = DeviceMask(u32::MAX);
    /// No device.
    pub const NONE: DeviceMask = DeviceMask(0);

    /// The set of one device.
    pub const fn only(device: DeviceId) -> DeviceMask {
        DeviceMask(1 << device.0)
    }

    /// The set plus `device`.
    pub const fn with(self, device: DeviceId) -> DeviceMask {
        DeviceMask(self.0 | 1 << device.0)
    }

    /// The set minus `device`.
    pub const fn without(self, device: DeviceId) -> DeviceMask {
        DeviceMask(self.0 & !(1 << device.0))
    }

    /// The set minus `others`.
    pub const fn minus(self, others: DeviceMask) -> DeviceMask {
        DeviceMask(self.0 & !others.0)
    }

    /// The devices in both sets.
    pub const fn intersection(self, other: DeviceMask) -> DeviceMask {
        DeviceMask(self.0 & other.0)
    }

    /// Whether `device` is in the set.
    #[inline]
    pub const fn contains(self, device: DeviceId) -> bool {
        self.0 >> device.0 & 1 != 0
    }

    /// Number of devices in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set has no device.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Members, ascending.
    pub fn iter(self) -> impl Iterator<Item = DeviceId> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let first = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            DeviceId::new(first)
        })
    }

    /// The set as a number: bit N is device N.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set with these [`bits`](DeviceMask::bits).
    pub const fn from_bits(bits: u32) -> DeviceMask {
        DeviceMask(bits)
    }
}

/// Device and slot offset: stands in a page table or in a shmem object in place of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SwapEntry(NonZeroU64);

impl SwapEntry {
    /// The entry of a slot; `None` for offset 0 (the header slot) and for offsets of more than 51
    /// bits.
    #[inline]
    pub const fn new(device: DeviceId, offset: u64) -> Option<SwapEntry> {
        if offset == 0 || offset > OFFSET_MASK {
            return None;
        }
        match NonZeroU64::new((device.0 as u64) << DEVICE_SHIFT | offset) {
            Some(raw) => Some(SwapEntry(raw)),
            None => None,
        }
    }

    /// The entry as a number below 2^56, never 0.
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.0.get()
    }

    /// The entry with this [number](Self::to_raw); `None` if no entry has it.
    #[inline]
    pub const fn from_raw(raw: u64) -> Option<SwapEntry> {
        if raw >> ENTRY_BITS != 0 || raw & OFFSET_MASK == 0 {
            return None;
        }
        match NonZeroU64::new(raw) {
            Some(raw) => Some(SwapEntry(raw)),
            None => None,
        }
    }

    /// Device that the slot belongs to.
    #[inline]
    pub const fn device(self) -> DeviceId {
        DeviceId((self.0.get() >> DEVICE_SHIFT) as u8)
    }

    /// Slot offset in the device, in pages; at least 1.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0.get() & OFFSET_MASK
    }

    /// The entry `slots` further on the same device; `None` past the largest offset.
    #[inline]
    pub const fn checked_add(self, slots: u64) -> Option<SwapEntry> {
        SwapEntry::new(self.device(), self.offset() + slots)
    }

    /// First entry of the naturally aligned run of `order` that holds this entry; `None` if that
    /// run begins at the header slot.
    #[inline]
    pub const fn round_down(self, order: Order) -> Option<SwapEntry> {
        SwapEntry::new(self.device(), self.offset() & !(order.slots() as u64 - 1))
    }

    /// Index of the slot in its cluster, 0 to 511.
    #[inline]
    pub const fn slot_in_cluster(self) -> u32 {
        (self.offset() % CLUSTER_SLOTS as u64) as u32
    }

    #[inline]
    pub(crate) const fn cluster(self) -> u64 {
        self.offset() / CLUSTER_SLOTS as u64
    }
}

impl core::fmt::Debug for SwapEntry {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "SwapEntry({}:{})", self.device().0, self.offset())
    }
}

/// The caller's number for a folio in the swap cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolioId(pub u32);

impl FolioId {
    /// Stands in the words of slots that lie in a [slot cache](crate::SlotCache). No folio may have
    /// this number under that policy.
    pub const SLOT_CACHE: FolioId = FolioId(u32::MAX);
}

/// The index of a per-CPU cluster: the real CPU in production, any number in tests. It is taken
/// modulo [`Config::cpus`](crate::Config::cpus).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalCpu(pub u32);

//! Wear of devices: slots that were ever written, and clusters that were discarded. Both are the
//! argument for patch 2 of series 1 and for its exception: a device without discards should write
//! over a limited area, and one with them should get whole clusters to discard.

use crate::memory::Memory;
use folioswap_slots::{DEVICES_MAX, DeviceId, SwapEntry};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of a word of the map.
const WORD: u64 = u64::BITS as u64;

/// Counts the wear of a set of devices. Shared by threads.
#[derive(Debug)]
pub struct Wear {
    /// One bit per slot.
    ever: Memory,
    /// First bit of each device; multiples of [`WORD`].
    first_bit: [u64; DEVICES_MAX],
    discarded: AtomicU64,
}

impl Wear {
    /// For devices of so many pages, of which nothing has been written.
    pub fn new(devices: impl IntoIterator<Item = (DeviceId, u64)>) -> Wear {
        let mut first_bit = [0; DEVICES_MAX];
        let mut bits = 0;
        for (id, pages) in devices {
            first_bit[id.index()] = bits;
            bits += pages.next_multiple_of(WORD);
        }
        Wear { ever: Memory::zeroed((bits / 8) as usize), first_bit, discarded: AtomicU64::new(0) }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: zeroed memory of our own, aligned to pages, which is accessed by this slice
        // alone.
        unsafe { std::slice::from_raw_parts(self.ever.start().cast().as_ptr(), self.ever.bytes() / 8) }
    }

    /// Notes that `slots` slots from `entry` on are written, at most a cluster of them.
    pub fn write(&self, entry: SwapEntry, slots: u32) {
        let mut bit = self.first_bit[entry.device().index()] + entry.offset();
        let end = bit + u64::from(slots);
        while bit < end {
            let count = (WORD - bit % WORD).min(end - bit);
            let mask = (u64::MAX >> (WORD - count)) << (bit % WORD);
            let word = &self.words()[(bit / WORD) as usize];
            // Most slots have been written before.
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
            bit += count;
        }
    }

    /// Notes that a cluster is discarded.
    pub fn discard_cluster(&self) {
        self.discarded.fetch_add(1, Relaxed);
    }

    /// Slots that were ever written. Cost: one load for 64 slots.
    pub fn slots_ever_written(&self) -> u64 {
        self.words().iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    /// Clusters discarded.
    pub fn clusters_discarded(&self) -> u64 {
        self.discarded.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;

//! The bytes of a swap device in RAM.

use crate::memory::Memory;
use folioswap_slots::SwapEntry;
use std::ptr::NonNull;

/// Bytes of a page, and of a slot.
pub const PAGE: usize = 4096;

/// A device in RAM, as a RAM disk is one: bytes go in and out by copies, without compression and without a queue.
#[derive(Debug)]
pub struct RamDevice {
    memory: Memory,
}

impl RamDevice {
    /// Of `pages` slots. Memory is taken at the first write of each page.
    ///
    /// # Panics
    /// When the system has no memory.
    pub fn new(pages: u64) -> RamDevice {
        RamDevice { memory: Memory::zeroed(pages as usize * PAGE) }
    }

    /// Takes all of its memory now, so that no later write waits for the system. Whatever was stored is zero afterwards. Cost: a page fault per page.
    pub fn populate(&mut self) {
        // SAFETY: the whole of our own memory, which nobody else sees meanwhile.
        unsafe { self.memory.start().write_bytes(0, self.memory.bytes()) }
    }

    /// Slots from offset 0 on, the header's included.
    pub fn pages(&self) -> u64 {
        (self.memory.bytes() / PAGE) as u64
    }

    /// Copies `slots` pages from memory to the slots from `entry` on. One request.
    ///
    /// # Safety
    /// `from` is readable for `slots` pages, outside the device. The slots are the caller's: nobody else reads or writes them meanwhile.
    ///
    /// # Panics
    /// If the device has no such slots.
    pub unsafe fn write(&self, entry: SwapEntry, slots: u32, from: NonNull<u8>) {
        let place = self.place(entry, slots);
        // SAFETY: the range lies inside the device, as was just checked; the rest is the caller's promise.
        unsafe { from.copy_to_nonoverlapping(place, slots as usize * PAGE) }
    }

    /// Copies `slots` pages from the slots from `entry` on to memory. One request.
    ///
    /// # Safety
    /// `to` is writable for `slots` pages, outside the device. The slots are the caller's: nobody else writes them meanwhile.
    ///
    /// # Panics
    /// If the device has no such slots.
    pub unsafe fn read(&self, entry: SwapEntry, slots: u32, to: NonNull<u8>) {
        let place = self.place(entry, slots);
        // SAFETY: as for `write`.
        unsafe { place.copy_to_nonoverlapping(to, slots as usize * PAGE) }
    }

    fn place(&self, entry: SwapEntry, slots: u32) -> NonNull<u8> {
        let (offset, bytes) = (entry.offset() as usize * PAGE, slots as usize * PAGE);
        assert!(offset + bytes <= self.memory.bytes(), "no such slots: {entry:?} and {slots}");
        // SAFETY: inside the memory, as was just checked.
        unsafe { self.memory.start().add(offset) }
    }
}

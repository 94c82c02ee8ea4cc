//! A swap device in RAM.

use crate::memory::Memory;
use folioswap_slots::SwapEntry;
use std::ptr::NonNull;

/// Bytes of a page, and of a slot.
pub use folioswap_devices::PAGE_SIZE as PAGE;

/// A device like a RAM disk: bytes go in and out by copies, without compression and without a
/// queue.
#[derive(Debug)]
pub struct RamDevice {
    memory: Memory,
}

impl RamDevice {
    /// Makes a device of `pages` slots. Memory is taken at the first write to each page.
    ///
    /// # Panics
    /// The system has no memory.
    pub fn new(pages: u64) -> RamDevice {
        RamDevice { memory: Memory::zeroed(pages as usize * PAGE) }
    }

    /// Takes all memory now, so that no later write waits for the system. The contents are zero
    /// afterwards. Cost: a page fault per page.
    pub fn populate(&mut self) {
        // SAFETY: the range is the whole of our own memory, and nobody else accesses it meanwhile.
        unsafe { self.memory.start().write_bytes(0, self.memory.bytes()) }
    }

    /// Number of slots from offset 0 on, the header's included.
    pub fn pages(&self) -> u64 {
        (self.memory.bytes() / PAGE) as u64
    }

    /// Copies `slots` pages from memory to the slots from `entry` on, as one request.
    ///
    /// # Safety
    /// `from` is readable for `slots` pages and outside the device. The slots are the caller's:
    /// nobody else reads or writes them meanwhile.
    ///
    /// # Panics
    /// The device has no such slots.
    pub unsafe fn write(&self, entry: SwapEntry, slots: u32, from: NonNull<u8>) {
        let start = self.start_of(entry, slots);
        // SAFETY: the range was just checked to lie inside the device; the rest is the caller's
        // promise.
        unsafe { from.copy_to_nonoverlapping(start, slots as usize * PAGE) }
    }

    /// Copies `slots` pages from the slots from `entry` on to memory, as one request.
    ///
    /// # Safety
    /// `to` is writable for `slots` pages and outside the device. The slots are the caller's:
    /// nobody else writes them meanwhile.
    ///
    /// # Panics
    /// The device has no such slots.
    pub unsafe fn read(&self, entry: SwapEntry, slots: u32, to: NonNull<u8>) {
        let start = self.start_of(entry, slots);
        // SAFETY: as for `write`.
        unsafe { start.copy_to_nonoverlapping(to, slots as usize * PAGE) }
    }

    fn start_of(&self, entry: SwapEntry, slots: u32) -> NonNull<u8> {
        let (offset, bytes) = (entry.offset() as usize * PAGE, slots as usize * PAGE);
        assert!(offset + bytes <= self.memory.bytes(), "no such slots: {entry:?} and {slots}");
        // SAFETY: the offset was just checked to lie inside the memory.
        unsafe { self.memory.start().add(offset) }
    }
}

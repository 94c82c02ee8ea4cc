//! Every invariant of the swap space, for tests.

use super::Space;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::{Invalid, PageMemory, Place};
use folioswap_policy::memory::Memory;
use folioswap_slots::{Report, SwapEntry};

/// The part whose invariants do not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The allocator's.
    Slots,
    /// The compressed RAM device's, and which of them.
    Store(Invalid),
    /// The counts of generations (their sum) differ from the objects of the compressed RAM device.
    Ages(u64),
}

/// The location of an entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nowhere: the entry was not written yet, or is free.
    Nowhere,
    /// Nothing needs to be stored for the entry.
    SameFilled,
    /// In the compressed RAM device.
    Zram,
    /// On a shared device.
    File,
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Checks the allocator and the compressed RAM device. No other thread may be at work. Cost: a
    /// walk of both.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn validate(&self) -> Result<Report, Broken> {
        let report = self.slots.validate().map_err(|_| Broken::Slots)?;
        self.zram.validate().map_err(Broken::Store)?;
        let counted = self.ages().total();
        if counted != self.zram.mm_stat().objects {
            return Err(Broken::Ages(counted));
        }
        Ok(report)
    }

    /// Returns the location of an entry's bytes. No other thread may be at work.
    pub fn held(&self, entry: SwapEntry) -> Held {
        let Some(beside) = self.beside(entry) else { return Held::Nowhere };
        match Place::unpack(beside.location.get(), beside.check.load(Relaxed)) {
            Some(Place::Zero | Place::SameFilled { .. }) => Held::SameFilled,
            Some(Place::Zram { .. }) => Held::Zram,
            Some(Place::File { .. }) => Held::File,
            Some(Place::None) | None => Held::Nowhere,
        }
    }
}

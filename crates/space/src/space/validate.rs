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
    /// The compressed RAM device's, and what of it.
    Store(Invalid),
    /// The counts of generations (their sum) are not the objects of the compressed RAM device.
    Ages(u64),
}

/// Where an entry's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nowhere: it was not written yet, or is nobody's.
    Nowhere,
    /// Nothing is stored for it.
    SameFilled,
    /// In the compressed RAM device.
    Zram,
    /// On the file device.
    File,
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Checks the allocator and the compressed RAM device. Nobody else may be at work. Cost: a walk of both.
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

    /// Where an entry's bytes are. Nobody else may be at work.
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

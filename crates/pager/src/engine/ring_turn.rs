//! The right to use the staging ring.

use crate::engine::Engine;
use crate::staging::ring::Staging;

/// The right to take pages into the staging ring of one process, outside of the sections of
/// `locks.write_back`.
///
/// One thread has it at a time: the evictor, or the handler while it holds the plan that the
/// evictor offered ([`crate::engine::plans::HeldPlan`]); the evictor sleeps meanwhile.
///
/// A reader of events changes the ring too: under `locks.write_back` it takes entries out of berths
/// (`store/write_back.rs`: `write_back_page`). So the holder reads entries of a berth under that
/// lock, and never keeps them over its end; the bounds of the ring are the holder's alone.
pub(crate) struct RingTurn<'e> {
    engine: &'e Engine,
}

impl<'e> RingTurn<'e> {
    /// # Safety
    /// The caller is the evictor, with no plan on offer, or the caller holds the plan; the turn
    /// ends before that does.
    pub(crate) unsafe fn new(engine: &'e Engine) -> Self {
        RingTurn { engine }
    }

    /// The engine that the ring belongs to.
    pub(crate) fn engine(&self) -> &'e Engine {
        self.engine
    }

    /// The ring, to be read.
    pub(crate) fn ring(&self) -> &Staging {
        // SAFETY: outside of the sections of `locks.write_back` only the holder of the turn changes
        // the ring, and `&self` says that it does not now.
        unsafe { &*self.engine.staging.get() }
    }

    /// The ring, to be changed.
    pub(crate) fn ring_mut(&mut self) -> &mut Staging {
        // SAFETY: as above; `&mut self` makes this the only use by the holder. It changes bounds,
        // and berths that no reader of events knows yet or that it locks out.
        unsafe { &mut *self.engine.staging.get() }
    }

    /// The ring, to be changed for as long as the turn lasts.
    pub(crate) fn into_ring(self) -> &'e mut Staging {
        // SAFETY: as for `ring_mut`; the turn is used up.
        unsafe { &mut *self.engine.staging.get() }
    }
}

//! Which folios of a batch the handler may compress for the evictor (`evict/direct_reclaim.rs`), and which it has.

use crate::engine::Engine;
use crate::staging::ring::BERTHS_MAX;
use crate::units::Pages;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU64};
use folioswap_policy::reclaim::division::{Division, Next};

/// Who writes what of a batch. All-zero is valid: nothing is offered.
#[repr(C)]
pub(crate) struct Shares {
    /// [`Division`].
    division: AtomicU64,
    /// Number of the oldest folio of the last offer, all of it.
    oldest: AtomicU64,
    /// One behind the number of its youngest. The evictor's.
    end: AtomicU64,
    /// By place in staging: pages whose bytes the handler has stored. Set by who helps, cleared when the folio is written back.
    pub(crate) stored: [AtomicU16; BERTHS_MAX],
}

impl Shares {
    pub(crate) fn load(&self) -> Division {
        Division::from_bits(self.division.load(Acquire))
    }

    fn exchange(&self, old: Division, new: Division) -> bool {
        self.division.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
    }

    /// Exchanges the word for what `next` makes of it, if that is anything; the word that was exchanged.
    fn update(&self, next: impl Fn(Division) -> Option<Division>) -> Option<Division> {
        let bits = |bits| next(Division::from_bits(bits)).map(Division::bits);
        self.division.fetch_update(AcqRel, Acquire, bits).ok().map(Division::from_bits)
    }

    /// Offers so many folios of staging from number `oldest` on. The evictor's, in a batch, while nothing is offered.
    pub(crate) fn offer(&self, oldest: u64, folios: u64) {
        // Read by who takes one of them.
        self.oldest.store(oldest, Relaxed);
        self.end.store(oldest + folios, Relaxed);
        self.update(|word| word.offer(oldest as u16, folios as u16));
    }

    /// Offers also what follows the last offer, up to folio `end`, once all of that is begun and the helper is done. The evictor's.
    pub(crate) fn offer_up_to(&self, written: u64, end: u64) {
        let first = self.end.load(Relaxed).max(written);
        let word = self.load();
        if first < end && word.help().is_none() && word.helped().is_none() {
            self.offer(first, end - first);
        }
    }

    /// Nothing is offered any more, and nobody is at a folio. The evictor's, before its batch ends; waits as long as a folio takes.
    pub(crate) fn withdraw(&self) {
        self.update(|word| Some(word.withdraw()));
        while self.load().helped().is_some() {
            rustix::thread::sched_yield();
        }
    }

    /// The evictor comes to folio `number` of staging: afterwards it is the evictor's alone.
    pub(crate) fn take(&self, number: u64) {
        loop {
            let word = self.load();
            match word.next(number as u16) {
                Next::Mine(after) if self.exchange(word, after) => return,
                Next::Mine(_) => {}
                Next::MineAlready => return,
                Next::Helped => rustix::thread::sched_yield(),
            }
        }
    }

    /// Pages of the folio in this place whose bytes are stored already.
    pub(crate) fn stored(&self, place: u32) -> Pages {
        self.stored[place as usize].load(Relaxed)
    }

    /// The folio in this place is written back.
    pub(crate) fn forget(&self, place: u32) {
        if self.stored(place) != 0 {
            self.stored[place as usize].store(0, Relaxed);
        }
    }

    /// Is there a folio for who helps?
    pub(crate) fn is_offered(&self) -> bool {
        self.load().help().is_some()
    }

    /// Takes a folio that is offered; its number.
    pub(crate) fn help(&self) -> Option<u64> {
        let (_, number) = self.update(|word| Some(word.help()?.0))?.help()?;
        // No other offer is made before this folio is done.
        let oldest = self.oldest.load(Relaxed);
        Some(oldest + u64::from(number.wrapping_sub(oldest as u16)))
    }

    /// The folio that [`Shares::help`] gave is done.
    pub(crate) fn helped_out(&self) {
        self.update(|word| Some(word.helped_out()));
    }
}

impl Engine {
    /// Does this page of the folio in staging have to be written no more: it is clean, or its bytes are stored already?
    pub(crate) fn is_stored(&self, place: u32, clean: Pages, page: usize) -> bool {
        (clean | self.shares.stored(place)) >> page & 1 != 0
    }
}

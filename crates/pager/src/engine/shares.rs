//! The folios of a batch that the handler may compress for the evictor (`evict/direct_reclaim.rs`),
//! and the folios that it has compressed.

use crate::engine::Engine;
use crate::staging::ring::{BERTHS_MAX, BerthIndex};
use crate::units::Pages;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU64};
use folioswap_policy::reclaim::division::{Division, Next};

/// The division of a batch's write-back between the evictor and the handler. All-zero is valid: no
/// folio is offered.
#[repr(C)]
pub(crate) struct Shares {
    /// [`Division`].
    division: AtomicU64,
    /// The number of the oldest folio of the last offer, in full.
    oldest: AtomicU64,
    /// One more than the number of the youngest folio of the last offer. The evictor's.
    end: AtomicU64,
    /// By berth: pages whose bytes the handler has stored. Set by the helping handler, cleared when
    /// the folio is written back.
    pub(crate) stored: [AtomicU16; BERTHS_MAX],
}

impl Shares {
    pub(crate) fn load(&self) -> Division {
        Division::from_bits(self.division.load(Acquire))
    }

    fn exchange(&self, old: Division, new: Division) -> bool {
        self.division.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
    }

    /// Exchanges the word for the result of `next`, if there is one; returns the word that was
    /// exchanged.
    fn update(&self, next: impl Fn(Division) -> Option<Division>) -> Option<Division> {
        let bits = |bits| next(Division::from_bits(bits)).map(Division::bits);
        self.division.fetch_update(AcqRel, Acquire, bits).ok().map(Division::from_bits)
    }

    /// Offers this many folios of staging from number `oldest` on. For the evictor, in a batch,
    /// while no folio is offered.
    pub(crate) fn offer(&self, oldest: u64, folios: u64) {
        // The thread that takes one of the folios reads this.
        self.oldest.store(oldest, Relaxed);
        self.end.store(oldest + folios, Relaxed);
        self.update(|word| word.offer(oldest as u16, folios as u16));
    }

    /// Extends the last offer up to folio `end`, once all of that offer is begun and the helper is
    /// done. For the evictor.
    pub(crate) fn offer_up_to(&self, written: u64, end: u64) {
        let first = self.end.load(Relaxed).max(written);
        let word = self.load();
        if first < end && word.help().is_none() && word.helped().is_none() {
            self.offer(first, end - first);
        }
    }

    /// Withdraws the offer: afterwards no folio is offered and no helper is at one. For the
    /// evictor, before its batch ends; waits as long as a folio takes.
    pub(crate) fn withdraw(&self) {
        self.update(|word| Some(word.withdraw()));
        while self.load().helped().is_some() {
            rustix::thread::sched_yield();
        }
    }

    /// Announces that the evictor has come to folio `number` of staging: afterwards the folio is
    /// the evictor's alone.
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

    /// The pages of the folio in this berth whose bytes are stored already.
    pub(crate) fn stored(&self, berth: BerthIndex) -> Pages {
        self.stored[berth.index()].load(Relaxed)
    }

    /// Forgets the stored pages of this berth, whose folio is written back.
    pub(crate) fn forget(&self, berth: BerthIndex) {
        if self.stored(berth) != 0 {
            self.stored[berth.index()].store(0, Relaxed);
        }
    }

    /// Whether a folio is offered to a helper.
    pub(crate) fn is_offered(&self) -> bool {
        self.load().help().is_some()
    }

    /// Takes a folio that is offered; returns its number.
    pub(crate) fn help(&self) -> Option<u64> {
        let (_, number) = self.update(|word| Some(word.help()?.0))?.help()?;
        // No other offer is made before this folio is done.
        let oldest = self.oldest.load(Relaxed);
        Some(oldest + u64::from(number.wrapping_sub(oldest as u16)))
    }

    /// Records that the folio that [`Shares::help`] gave is done.
    pub(crate) fn helped_out(&self) {
        self.update(|word| Some(word.helped_out()));
    }
}

impl Engine {
    /// Whether this page of the folio in staging needs no write any more, because it is clean or
    /// its bytes are stored already.
    pub(crate) fn is_stored(&self, berth: BerthIndex, clean: Pages, page: usize) -> bool {
        (clean | self.shares.stored(berth)) >> page & 1 != 0
    }
}

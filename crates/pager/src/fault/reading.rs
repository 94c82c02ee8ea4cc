//! One read from a device that goes on while the handler does something else: of which slots, how far it is, and what of it may still be taken.

use crate::units::Pages;
use folioswap_devices::FileSlot;

/// What a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A fault that waits for it.
    Fault,
    /// A fault that may follow.
    Ahead,
}

/// Bytes that a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) purpose: Purpose,
    /// Since when a fault waited for them, if one did.
    pub(crate) waited_since_ns: Option<u64>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is read there.
    Free,
    UnderWay,
    /// Under way, and nobody wants it any more: its room is not free yet.
    Forgotten,
    There,
    /// The device did not give it. Who serves the fault asks once more, waits, and reports what he is told.
    Failed,
}

/// A read of slots that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) purpose: Purpose,
    pub(crate) state: State,
    pub(crate) first: u64,
    pub(crate) count: usize,
    /// Those that may be taken. The others are read only because they lie between these, or were taken.
    pub(crate) wanted: Pages,
    pub(crate) began_ns: u64,
    /// When a fault began to wait for what is read ahead; 0: none has.
    pub(crate) awaited_ns: u64,
    /// `Engine::stale_copies` when it began.
    pub(crate) stale_copies: u32,
}

impl Reading {
    /// None yet.
    pub(crate) const fn free(purpose: Purpose) -> Self {
        let state = State::Free;
        Reading { purpose, state, first: 0, count: 0, wanted: 0, began_ns: 0, awaited_ns: 0, stale_copies: 0 }
    }

    /// These slots' bits of [`Reading::wanted`], as far as it reads them.
    fn bits(&self, first: FileSlot, count: usize) -> Pages {
        let in_range =
            |page: &usize| (first.raw()..first.raw() + count as u64).contains(&(self.first + *page as u64));
        (0..self.count).filter(in_range).fold(0, |bits, page| bits | 1 << page)
    }

    /// Can all of these slots be had of it, now or soon?
    pub(crate) fn holds(&self, first: FileSlot, count: usize) -> bool {
        let end = self.first + self.count as u64;
        matches!(self.state, State::UnderWay | State::There | State::Failed)
            && (self.first..end).contains(&first.raw())
            && first.raw() + count as u64 <= end
            && self.bits(first, count) & !self.wanted == 0
    }

    pub(crate) fn touches(&self, first: FileSlot, count: usize) -> bool {
        self.first < first.raw() + count as u64 && first.raw() < self.first + self.count as u64
    }

    /// These slots may be another's by now. What is read for a fault is of no use without them; of what is read ahead the rest stays.
    pub(crate) fn give_up(&mut self, first: FileSlot, count: usize) {
        self.wanted &= !self.bits(first, count);
        if self.purpose == Purpose::Fault || self.wanted == 0 {
            self.forget();
        }
    }

    /// Nobody wants it any more.
    pub(crate) fn forget(&mut self) {
        self.state = match self.state {
            State::UnderWay | State::Forgotten => State::Forgotten,
            State::There | State::Failed | State::Free => State::Free,
        };
    }
}

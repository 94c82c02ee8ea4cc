//! One read from a device that goes on while the handler does something else: the slots it reads,
//! its state, and the pages of it that may still be taken.

use crate::units::Pages;
use folioswap_devices::FileSlot;

/// The use that a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A fault waits for the read.
    Fault,
    /// A fault on these pages may follow.
    Ahead,
}

/// Bytes that a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) purpose: Purpose,
    /// Since when a fault waited for them, if one did.
    pub(crate) waited_since_ns: Option<u64>,
}

/// The state of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is read there.
    Free,
    UnderWay,
    /// The read is under way, and nobody wants its pages any more; its buffer is not free yet.
    Forgotten,
    There,
    /// The device failed to deliver the pages. The handler asks it once more when it serves the
    /// fault, waits for the answer, and reports that.
    Failed,
}

/// A read of consecutive slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) purpose: Purpose,
    pub(crate) state: State,
    pub(crate) first: u64,
    pub(crate) count: usize,
    /// Pages that may be taken. The others have been taken, or are read only because they lie in
    /// between.
    pub(crate) wanted: Pages,
    pub(crate) began_ns: u64,
    /// When a fault began to wait for pages that are read ahead; 0: none has.
    pub(crate) awaited_ns: u64,
    /// The value of `Engine::stale_copies` when the read began.
    pub(crate) stale_copies: u32,
}

impl Reading {
    /// No read yet.
    pub(crate) const fn free(purpose: Purpose) -> Self {
        let state = State::Free;
        Reading { purpose, state, first: 0, count: 0, wanted: 0, began_ns: 0, awaited_ns: 0, stale_copies: 0 }
    }

    /// The bits of [`Reading::wanted`] that stand for these slots, as far as the read covers them.
    fn bits(&self, first: FileSlot, count: usize) -> Pages {
        let in_range =
            |page: &usize| (first.raw()..first.raw() + count as u64).contains(&(self.first + *page as u64));
        (0..self.count).filter(in_range).fold(0, |bits, page| bits | 1 << page)
    }

    /// Whether all of these slots can be had from this read, now or soon.
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

    /// These slots may belong to another page by now. A read for a fault is of no use without them;
    /// of a read ahead the other pages stay.
    pub(crate) fn give_up(&mut self, first: FileSlot, count: usize) {
        self.wanted &= !self.bits(first, count);
        if self.purpose == Purpose::Fault || self.wanted == 0 {
            self.forget();
        }
    }

    /// Nobody wants the pages of this read any more.
    pub(crate) fn forget(&mut self) {
        self.state = match self.state {
            State::UnderWay | State::Forgotten => State::Forgotten,
            State::There | State::Failed | State::Free => State::Free,
        };
    }
}

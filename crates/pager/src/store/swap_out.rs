//! Slots for leaving pages: one run for each folio that is not split, of every order (spec §3.5,
//! §3.6).
//!
//! A folio here is a part of a row that is aligned to its own length and leaves entirely; the
//! largest folios come first. A folio for which no device has a run is split into folios of the
//! next smaller size that is allowed, down to single pages. Each size that was asked for in vain is
//! counted once, as a fallback of that size.

use crate::engine::Engine;
use crate::staging::isolation::{Isolation, Refused};
use crate::staging::row::ROW_PIECES;
use crate::staging::staged_folio::StagedFolio;
use crate::store::part::Part;
use crate::units::{PIECE_ORDER, PIECE_PAGES, Pages};
use folioswap_group::counters::SizeCounter;
use folioswap_slots::{AllocError, Order, SlotWord};

impl Engine {
    /// Allocates slots for the pages of a row that are to be written. Where slots run out, the
    /// pieces from there on report it and hold none: only their clean pages can leave, because
    /// these need no slot.
    pub(crate) fn allocate_entries(&self, parts: &mut [Part], done: &mut [Isolation; ROW_PIECES]) {
        let (mut page, mut split_until, mut order_most) = (0, 0, Order::MAX.index());
        while page < parts.len() * PIECE_PAGES {
            if page >= split_until {
                order_most = Order::MAX.index();
            }
            let Some(natural) = folio_at(parts, page, order_most.min(self.order_advised(parts, page))) else {
                page += 1;
                continue;
            };
            let first = parts[page / PIECE_PAGES].piece.page(page % PIECE_PAGES);
            let order = self.largest_order(first, natural.index() as u8);
            let order = Order::new(u32::from(order)).unwrap_or(Order::ZERO);
            match self.allocate_folio(parts, page, order) {
                Ok(()) => page += order.slots() as usize,
                Err(AllocError::SplitAndRetry) if order != Order::ZERO => {
                    self.figures().add_size(SizeCounter::SwapOutFallback, order.index(), 1);
                    split_until = split_until.max(page + order.slots() as usize);
                    order_most = order.index() - 1;
                }
                Err(_) => {
                    let first = page / PIECE_PAGES;
                    for (part, isolation) in parts.iter_mut().zip(done).skip(first) {
                        if part.wanted.written != 0 {
                            isolation.refused = Some(Refused::NoSlots);
                            part.wanted.written = 0;
                        }
                        part.entries
                            .iter_mut()
                            .filter_map(Option::take)
                            .for_each(|entry| self.space.abandon(entry));
                    }
                    return;
                }
            }
        }
    }

    /// The largest order in which the block's history advises to take out this page of a row:
    /// memory that was touched at random lately leaves in single pages. A huge page of the kernel's
    /// came as one, and leaves as one.
    fn order_advised(&self, parts: &[Part], page: usize) -> usize {
        let is_whole = parts.len() == ROW_PIECES;
        let block = self.table.block(parts[page / PIECE_PAGES].piece);
        let is_at_random = !is_whole && block.is_some_and(|block| block.history.is_at_random());
        if is_at_random { 0 } else { Order::MAX.index() }
    }

    /// Allocates one run of slots for the folio of this order that begins at `page` of the row.
    fn allocate_folio(&self, parts: &mut [Part], page: usize, order: Order) -> Result<(), AllocError> {
        self.space.reserve_frames().map_err(|_| AllocError::NoFrame)?;
        let folio = StagedFolio { first: parts[page / PIECE_PAGES].berth, order };
        let first = self.space.allocate(order, folio.id())?;
        for within in 0..order.slots() as usize {
            let part = &mut parts[(page + within) / PIECE_PAGES];
            let at = (page + within) % PIECE_PAGES;
            part.entries[at] = first.checked_add(within as u64);
            part.orders[at] = order.index() as u8;
        }
        Ok(())
    }

    /// How many pages of the oldest berth in staging have yet to be written, and the order of the
    /// largest folio that consists of such pages only. The order is at most that of 64 KiB, because
    /// one write takes no more. The caller is the evictor; takes the write-back lock.
    pub(crate) fn to_write(&self) -> (u32, Order) {
        let _takers_wait = self.locks.write_back.lock();
        // SAFETY: the evictor, which we are, may use the ring with this lock held.
        let staging = unsafe { &*self.staging.get() };
        let Some(berth) = staging.oldest() else { return (0, Order::ZERO) };
        let folio = staging.berth(berth);
        let is_left =
            |page: &usize| folio.entries[*page].is_some() && !self.is_stored(berth, folio.clean, *page);
        let left = (0..PIECE_PAGES).filter(is_left).fold(0, |pages: Pages, page| pages | 1 << page);
        let order_of = |page: usize| {
            let of = folio.entries[page].and_then(|entry| match self.space.slots().word(entry) {
                SlotWord::Cached { folio, .. } => Some(StagedFolio::of(folio).order),
                _ => None,
            })?;
            let order = of.min(Order::new(PIECE_ORDER.into())?);
            let count = order.slots() as usize;
            // A run of this length from an unaligned page would not end within the folio.
            if !page.is_multiple_of(count) {
                return None;
            }
            let pages = (page..page + count).fold(0, |pages: Pages, page| pages | 1 << page);
            (left & pages == pages).then_some(order)
        };
        let largest = (0..PIECE_PAGES).filter_map(order_of).max();
        (left.count_ones(), largest.unwrap_or(Order::ZERO))
    }

    /// Gives up the slots of pages that have not moved, and counts those that have: as a folio
    /// where all of it moved.
    pub(crate) fn account_for(&self, parts: &mut [Part], done: &[Isolation; ROW_PIECES]) {
        let mut page = 0;
        while page < parts.len() * PIECE_PAGES {
            let (part, at) = (&parts[page / PIECE_PAGES], page % PIECE_PAGES);
            if part.wanted.written >> at & 1 == 0 || part.entries[at].is_none() {
                page += 1;
                continue;
            }
            let order = part.orders[at];
            let mut moved = 0;
            for within in page..page + (1 << order) {
                if done[within / PIECE_PAGES].moved >> (within % PIECE_PAGES) & 1 != 0 {
                    moved += 1;
                } else if let Some(entry) = parts[within / PIECE_PAGES].entries[within % PIECE_PAGES].take() {
                    self.space.abandon(entry);
                }
            }
            if moved == 1u64 << order {
                self.figures().add_size(SizeCounter::SwapOut, order as usize, 1);
            } else {
                self.figures().add_size(SizeCounter::SwapOut, 0, moved);
            }
            page += 1 << order;
        }
    }
}

/// The largest folio of up to `order_most` that begins at `page` of the row and of which every page
/// is to be written; `None` if `page` itself is not.
fn folio_at(parts: &[Part], page: usize, order_most: usize) -> Option<Order> {
    let wanted = |page: usize| {
        parts.get(page / PIECE_PAGES).is_some_and(|part| part.wanted.written >> (page % PIECE_PAGES) & 1 != 0)
    };
    if !wanted(page) {
        return None;
    }
    let index = parts[0].piece.index().get() + page;
    let mut order = 0;
    while order < order_most
        && index & (1 << order) == 0
        && (page + (1 << order)..page + (2 << order)).all(wanted)
    {
        order += 1;
    }
    Order::new(order as u32)
}

#[cfg(test)]
mod tests;

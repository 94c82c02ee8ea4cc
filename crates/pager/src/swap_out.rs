//! Slots for what leaves: a run for each whole folio, of every order (spec §3.5, §3.6).
//!
//! A folio is here what of a row is aligned to its own length and leaves as a whole; the largest come first. Where a device has no run
//! for one, it is split into folios of the next smaller size that is allowed, down to single pages. Each size that was asked for in vain is
//! counted once for it, as a fallback of that size.

use crate::engine::Engine;
use crate::folio::StagedFolio;
use crate::isolate::{Isolation, Pages, Part, Refused, page_index};
use crate::readahead::PIECE_ORDER;
use crate::row::ROW_PIECES;
use crate::staging::FOLIO_PAGES;
use folioswap_group::counters::SizeCounter;
use folioswap_policy::page_table::PAGE;
use folioswap_slots::{AllocError, Order, SlotWord};

impl Engine {
    /// Slots for the pages of a row that are to be written. Where there are none (left), the pieces from there on say so, and hold none: of
    /// them only what is clean can go, which needs none.
    pub(crate) fn allocate_entries(&self, parts: &mut [Part], done: &mut [Isolation; ROW_PIECES]) {
        let Some(start) = parts.first().map(|part| part.piece) else { return };
        let (mut page, mut split_until, mut order_most) = (0, 0, Order::MAX.index());
        while page < parts.len() * FOLIO_PAGES {
            if page >= split_until {
                order_most = Order::MAX.index();
            }
            let Some(natural) = folio_at(parts, page, order_most.min(self.order_advised(parts, page))) else {
                page += 1;
                continue;
            };
            let order = self.largest_order(start + page * PAGE, natural.index() as u8);
            let order = Order::new(u32::from(order)).unwrap_or(Order::ZERO);
            match self.allocate_folio(parts, page, order) {
                Ok(()) => page += order.slots() as usize,
                Err(AllocError::SplitAndRetry) if order != Order::ZERO => {
                    self.figures().add_size(SizeCounter::SwapOutFallback, order.index(), 1);
                    split_until = split_until.max(page + order.slots() as usize);
                    order_most = order.index() - 1;
                }
                Err(_) => {
                    let first = page / FOLIO_PAGES;
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

    /// The largest order in which the region's history advises to take this page of a row out: what was touched at random of late leaves in
    /// single pages. What is one of the kernel's huge pages came as one, and leaves as one.
    fn order_advised(&self, parts: &[Part], page: usize) -> usize {
        let is_whole = parts.len() == ROW_PIECES;
        let block = self.table.block(parts[page / FOLIO_PAGES].piece);
        let is_at_random = !is_whole && block.is_some_and(|block| block.history.is_at_random());
        if is_at_random { 0 } else { Order::MAX.index() }
    }

    /// One run of slots for the folio of this order that begins at `page` of the row.
    fn allocate_folio(&self, parts: &mut [Part], page: usize, order: Order) -> Result<(), AllocError> {
        self.space.reserve_frames().map_err(|_| AllocError::NoFrame)?;
        let folio = StagedFolio { place: parts[page / FOLIO_PAGES].place, order };
        let first = self.space.allocate(order, folio.id())?;
        for within in 0..order.slots() as usize {
            let part = &mut parts[(page + within) / FOLIO_PAGES];
            let at = (page + within) % FOLIO_PAGES;
            part.entries[at] = first.checked_add(within as u64);
            part.orders[at] = order.index() as u8;
        }
        Ok(())
    }

    /// What of the oldest place in staging has yet to be written: how many pages, and the order (64 KiB at most, which is what is written at
    /// a time) of the largest folio of which that is all. Evictor only; takes the write-back lock.
    pub(crate) fn to_write(&self) -> (u32, Order) {
        let _takers_wait = self.write_back_lock.lock();
        // SAFETY: the ring is used by the evictor, which we are, with the lock held.
        let staging = unsafe { &*self.staging.get() };
        let Some(place) = staging.oldest() else { return (0, Order::ZERO) };
        let folio = staging.folio(place);
        let is_left =
            |page: &usize| folio.entries[*page].is_some() && !self.is_stored(place, folio.clean, *page);
        let left = (0..FOLIO_PAGES).filter(is_left).fold(0, |pages: Pages, page| pages | 1 << page);
        let order_of = |page: usize| {
            let of = folio.entries[page].and_then(|entry| match self.space.slots().word(entry) {
                SlotWord::Cached { folio, .. } => Some(StagedFolio::of(folio).order),
                _ => None,
            })?;
            let order = of.min(Order::new(PIECE_ORDER.into())?);
            let count = order.slots() as usize;
            // From another page on it would not end within the folio.
            if !page.is_multiple_of(count) {
                return None;
            }
            let pages = (page..page + count).fold(0, |pages: Pages, page| pages | 1 << page);
            (left & pages == pages).then_some(order)
        };
        let largest = (0..FOLIO_PAGES).filter_map(order_of).max();
        (left.count_ones(), largest.unwrap_or(Order::ZERO))
    }

    /// Slots of what has not moved are given up, and what has is counted: as a folio where all of it moved.
    pub(crate) fn account_for(&self, parts: &mut [Part], done: &[Isolation; ROW_PIECES]) {
        let mut page = 0;
        while page < parts.len() * FOLIO_PAGES {
            let (part, at) = (&parts[page / FOLIO_PAGES], page % FOLIO_PAGES);
            if part.wanted.written >> at & 1 == 0 || part.entries[at].is_none() {
                page += 1;
                continue;
            }
            let order = part.orders[at];
            let mut moved = 0;
            for within in page..page + (1 << order) {
                if done[within / FOLIO_PAGES].moved >> (within % FOLIO_PAGES) & 1 != 0 {
                    moved += 1;
                } else if let Some(entry) = parts[within / FOLIO_PAGES].entries[within % FOLIO_PAGES].take() {
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

/// The largest folio of up to `order_most` that begins at `page` of the row, and of which all is to be written; `None` if the page is not.
fn folio_at(parts: &[Part], page: usize, order_most: usize) -> Option<Order> {
    let wanted = |page: usize| {
        parts.get(page / FOLIO_PAGES).is_some_and(|part| part.wanted.written >> (page % FOLIO_PAGES) & 1 != 0)
    };
    if !wanted(page) {
        return None;
    }
    let index = page_index(parts[0].piece) + page;
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
mod tests {
    use super::*;
    use crate::candidates::Candidates;
    use crate::staging::FOLIO;
    use crate::test_memory;
    use folioswap_policy::page_table::BLOCK;
    use std::vec::Vec;

    /// A row of pieces from number `first` of a block on.
    fn parts(first: usize, wanted: &[u16]) -> Vec<Part> {
        let part = |(number, &written): (usize, &u16)| Part {
            piece: 0x7000_0000_0000 / BLOCK * BLOCK + (first + number) * FOLIO,
            place: (first + number) as u32,
            wanted: Candidates { written, clean: 0 },
            ..Part::default()
        };
        wanted.iter().enumerate().map(part).collect()
    }

    /// Orders of the folios of a row.
    fn orders(parts: &[Part]) -> Vec<u8> {
        let (mut orders, mut page) = (Vec::new(), 0);
        while page < parts.len() * FOLIO_PAGES {
            match folio_at(parts, page, 9) {
                Some(order) => {
                    orders.push(order.index() as u8);
                    page += order.slots() as usize;
                }
                None => page += 1,
            }
        }
        orders
    }

    #[test]
    fn a_folio_is_aligned_to_its_length_and_whole() {
        let all = u16::MAX;
        for (first, wanted, expected) in [
            (0, &[all; 32][..], &[9][..]),
            (0, &[all; 31], &[8, 7, 6, 5, 4]),
            (1, &[all; 4], &[4, 5, 4]),
            (16, &[all; 16], &[8]),
            (0, &[0x8000, all, 1], &[0, 4, 0]),
            (0, &[0b0111_1110], &[0, 1, 1, 0]),
            (0, &[0xff00], &[3]),
            (0, &[0], &[]),
        ] {
            assert_eq!(orders(&parts(first, wanted)), expected, "{first} {wanted:?}");
        }
    }

    #[test]
    fn each_page_gets_the_slot_at_its_place_in_the_folio_and_what_stays_gives_it_back() {
        let engine = test_memory::engine();
        let mut parts = parts(0, &[u16::MAX; 32]);
        let mut done = [Isolation::default(); ROW_PIECES];
        engine.allocate_entries(&mut parts, &mut done);
        assert!(done.iter().all(|isolation| isolation.refused.is_none()));
        let first = parts[0].entries[0].unwrap();
        assert_eq!(first.offset() % 512, 0);
        for (number, part) in parts.iter().enumerate() {
            for (page, entry) in part.entries.iter().enumerate() {
                let entry = entry.expect("a slot");
                assert_eq!(Some(entry), first.checked_add((number * FOLIO_PAGES + page) as u64));
                assert_eq!(engine.staging_place(entry), Some(number as u32));
            }
        }
        done.iter_mut().for_each(|isolation| isolation.moved = u16::MAX);
        done[31].moved = 0x7fff;
        engine.account_for(&mut parts, &done);
        assert_eq!(engine.figures().size(SizeCounter::SwapOut, 9), 0);
        assert_eq!(engine.figures().size(SizeCounter::SwapOut, 0), 511, "it was split");
        assert_eq!(parts[31].entries[15], None);
        assert_eq!(engine.space.slots().stats().inuse, 511);
    }

    /// Takes every slot in folios of this order, and gives every other one up: there is room for as large ones, and for smaller ones, alone.
    fn fragment(engine: &Engine, order: u32) {
        let order = Order::new(order).unwrap();
        let mut taken = Vec::new();
        loop {
            engine.space.reserve_frames().unwrap();
            match engine.space.allocate(order, StagedFolio { place: 0, order }.id()) {
                Ok(entry) => taken.push(entry),
                Err(_) => break,
            }
        }
        for first in taken.into_iter().step_by(2) {
            (0..order.slots().into()).for_each(|slot| engine.space.abandon(first.checked_add(slot).unwrap()));
        }
    }

    fn fallbacks(engine: &Engine) -> [u64; 10] {
        core::array::from_fn(|order| engine.figures().size(SizeCounter::SwapOutFallback, order))
    }

    #[test]
    fn where_there_is_no_run_a_folio_is_split_step_by_step_and_each_size_counts() {
        for largest in [0, 2, 5, 8] {
            let engine = test_memory::engine_with_slots(6 * 512);
            fragment(engine, largest);
            let mut parts = parts(0, &[u16::MAX; 32]);
            let mut done = [Isolation::default(); ROW_PIECES];
            engine.allocate_entries(&mut parts, &mut done);
            assert!(done.iter().all(|isolation| isolation.refused.is_none()), "{largest}");
            assert!(parts.iter().all(|part| part.orders == [largest as u8; FOLIO_PAGES]), "{largest}");
            assert!(parts.iter().all(|part| part.entries.iter().all(Option::is_some)), "{largest}");
            let expected = core::array::from_fn(|order| u64::from(order > largest as usize));
            assert_eq!(fallbacks(engine), expected, "{largest}: once for each size");
            done.iter_mut().for_each(|isolation| isolation.moved = u16::MAX);
            engine.account_for(&mut parts, &done);
            assert_eq!(engine.figures().size(SizeCounter::SwapOut, largest as usize), 512 >> largest);
        }
    }

    #[test]
    fn a_size_that_is_not_allowed_is_not_asked_for() {
        let engine = test_memory::engine_with_slots(6 * 512);
        let allowed =
            folioswap_group::folio_orders::FolioOrders { always: 1 << 8 | 1 << 6 | 1 << 2, madvise: 0 };
        engine.segment().set_folio_orders(allowed);
        fragment(engine, 2);
        let mut parts = parts(0, &[u16::MAX; 16]);
        let mut done = [Isolation::default(); ROW_PIECES];
        engine.allocate_entries(&mut parts, &mut done);
        assert_eq!(fallbacks(engine), [0, 0, 0, 0, 0, 0, 1, 0, 1, 0]);
        assert!(parts.iter().all(|part| part.orders == [2; FOLIO_PAGES]));
    }

    #[test]
    fn what_was_touched_at_random_leaves_in_single_pages_and_what_was_walked_through_in_large_folios() {
        let engine = test_memory::engine();
        let out = |wanted: &[u16]| {
            let mut parts = parts(0, wanted);
            let mut done = [Isolation::default(); ROW_PIECES];
            engine.allocate_entries(&mut parts, &mut done);
            parts
                .iter()
                .flat_map(|part| part.entries)
                .flatten()
                .for_each(|entry| engine.space.abandon(entry));
            let mut orders: Vec<_> = parts.iter().flat_map(|part| part.orders).collect();
            orders.dedup();
            orders
        };
        let block = engine.table.block_or_insert(parts(0, &[1])[0].piece, engine.arena).unwrap();
        assert_eq!(out(&[u16::MAX; 16]), [8], "nothing is known of it");
        for page in (0..10).map(|number| number * number * 5 % 511) {
            block.history.remember(page, page + 1, 0);
        }
        assert_eq!(out(&[u16::MAX; 16]), [0]);
        assert_eq!(out(&[u16::MAX; 32]), [9], "a huge page");
        // A walk comes by.
        for (first, order) in [(64, 2), (68, 4), (80, 6)] {
            block.history.remember(first, first + (1 << order), order);
        }
        assert_eq!(out(&[u16::MAX; 16]), [8]);
    }

    #[test]
    fn whole_folios_count_by_their_size() {
        let engine = test_memory::engine();
        let mut parts = parts(1, &[u16::MAX, u16::MAX, u16::MAX, 0x00f0]);
        let mut done = [Isolation::default(); ROW_PIECES];
        engine.allocate_entries(&mut parts, &mut done);
        for (isolation, moved) in done.iter_mut().zip([u16::MAX, u16::MAX, u16::MAX, 0x00f0]) {
            isolation.moved = moved;
        }
        engine.account_for(&mut parts, &done);
        let counted = [0, 1, 2, 3, 4, 5].map(|order| engine.figures().size(SizeCounter::SwapOut, order));
        assert_eq!(counted, [0, 0, 1, 0, 1, 1]);
    }
}

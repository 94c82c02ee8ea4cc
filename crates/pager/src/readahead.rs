//! What comes back with a page: swapin readahead.
//!
//! * Out of order, the page alone; where faults go on from page to page, a growing window (`folioswap_core::history`).
//! * Out of the swap cache, where it costs a copy and no reading: also all of its folio that is still there. One touch then keeps all of
//!   the folio, as one accessed page does in the kernel.

use crate::engine::Engine;
use crate::isolate::{Pages, page_index};
use crate::staging::FOLIO_PAGES;
use core::ops::Range;
use folioswap_core::history::{WINDOW_ORDER_MAX, Window};
use folioswap_core::page::{PageState, PageWord};
use folioswap_core::page_table::{Block, PAGE};

const _: () = assert!(1 << WINDOW_ORDER_MAX == FOLIO_PAGES);

/// What a fault on a page that is away should bring back of its 64 KiB piece.
#[derive(Clone, Debug)]
pub(crate) struct Readahead {
    /// The pages, those that are not away included.
    pub(crate) pages: Pages,
    /// The order of what is read from a device; 0: it was touched out of order.
    pub(crate) order: u8,
    /// For the history: the pages of the block that are its window.
    window: Range<usize>,
}

impl Readahead {
    /// It was done.
    pub(crate) fn remember(&self, block: &Block) {
        block.history.remember(self.window.start, self.window.end, self.order);
    }
}

impl Engine {
    /// What a fault at `address`, in `block`, should bring in, as the region's history advises.
    pub(crate) fn window(&self, block: &Block, address: usize) -> Window {
        let beside = |address| self.table.block(address).map(|block| &block.history);
        let before = || beside(address.wrapping_sub(PAGE));
        block.history.window(page_index(address), before, || beside(address + PAGE))
    }

    /// What a fault on the page at `address`, which is away, should bring back. Handler only.
    pub(crate) fn readahead(&self, block: &Block, address: usize) -> Readahead {
        let (index, Window { order, .. }) = (page_index(address), self.window(block, address));
        let aligned = index & !((1 << order) - 1);
        let window = aligned..aligned + (1 << order);
        let first = index & !(FOLIO_PAGES - 1);
        let mut pages = pages_that(first, |page| window.contains(&page));
        if let Some(folio) = self.folio_of(block.word(index)) {
            pages |= pages_that(first, |page| self.folio_of(block.word(page)) == Some(folio));
        }
        Readahead { pages, order, window }
    }

    /// Where in the swap cache the page's folio waits for its write-back, if it does.
    fn folio_of(&self, word: PageWord) -> Option<u32> {
        match word.state() {
            PageState::Leaving(entry) => self.staging_place(entry),
            _ => None,
        }
    }
}

/// Those of the piece that begins at page `first` of its block.
fn pages_that(first: usize, wanted: impl Fn(usize) -> bool) -> Pages {
    (0..FOLIO_PAGES).fold(0, |pages, page| pages | Pages::from(wanted(first + page)) << page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory;
    use folioswap_devices::Page;
    use folioswap_slots::{FolioId, Order};

    const PROGRAM: usize = 0x7000_0000_0000;

    fn store(engine: &Engine, page: usize) {
        let mut bytes: Page = [0; PAGE];
        bytes[..8].copy_from_slice(&(page + 1).to_le_bytes());
        test_memory::store_page(engine, PROGRAM + page * PAGE, &bytes);
    }

    /// A page that waits in the swap cache as part of a folio.
    fn stage(engine: &Engine, page: usize, folio: u32) {
        engine.space.reserve_frames().unwrap();
        let entry = engine.space.allocate(Order::ZERO, FolioId(folio)).unwrap();
        let word = PageWord::PRESENT.isolate(entry).and_then(PageWord::moved).unwrap();
        engine.table.block_or_insert(PROGRAM, engine.arena).unwrap().set(page, word);
    }

    fn readahead(engine: &Engine, page: usize) -> Readahead {
        engine.readahead(engine.table.block(PROGRAM).unwrap(), PROGRAM + page * PAGE)
    }

    #[test]
    fn out_of_the_swap_cache_a_folio_comes_whole_and_alone() {
        let engine = test_memory::engine();
        (0..6).for_each(|page| stage(engine, page, 3));
        (6..9).for_each(|page| stage(engine, page, 4));
        (9..16).for_each(|page| store(engine, page));
        let found = readahead(engine, 2);
        assert_eq!((found.pages, found.order), (0b11_1111, 0));
        assert_eq!(readahead(engine, 7).pages, 0b1_1100_0000);
        // From a device: the page alone, until faults go on from it.
        let found = readahead(engine, 9);
        assert_eq!((found.pages, found.order), (1 << 9, 0));
        found.remember(engine.table.block(PROGRAM).unwrap());
        let found = readahead(engine, 10);
        assert_eq!((found.pages, found.order), (0xf << 8, 2));
    }
}

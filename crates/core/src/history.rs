//! How a program went through a block lately, and what follows from it: how many pages a fault brings along, and on which side.
//!
//! A fault beside what the last one brought in goes on in that direction; the window then grows fourfold up to 2 MiB. Any other
//! fault is out of order and brings one page.

use crate::page_table::BLOCK_PAGES;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

/// Largest window, as a power of two of pages: a block of 2 MiB.
pub const WINDOW_ORDER_MAX: u8 = 9;
/// How much the window grows at each fault that continues where the last one ended.
const WINDOW_GROWTH: u8 = 2;

/// On which side of a fault the pages lie that will be wanted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// At higher addresses.
    Forwards,
    /// At lower addresses.
    Backwards,
}

/// What a fault should bring in: 2^`order` pages that contain its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// 0 to [`WINDOW_ORDER_MAX`]; 0 for an access out of order.
    pub order: u8,
    /// Where the others lie.
    pub direction: Direction,
}

impl Window {
    /// The page alone.
    pub const ONE: Window = Window { order: 0, direction: Direction::Forwards };

    /// The pages of this window from page `at` on, one after the other in its direction, as far as they are `wanted` and within the
    /// first `pages`. `at` itself is one of them and is not asked about.
    pub fn run(self, at: usize, pages: usize, mut wanted: impl FnMut(usize) -> bool) -> Range<usize> {
        let others = (1 << self.order) - 1;
        match self.direction {
            Direction::Forwards => {
                let next = at + 1..(at + 1 + others).min(pages);
                at..at + 1 + next.take_while(|&page| wanted(page)).count()
            }
            Direction::Backwards => {
                let next = (at.saturating_sub(others)..at).rev();
                at - next.take_while(|&page| wanted(page)).count()..at + 1
            }
        }
    }
}

/// What the last fault in a block brought in. All-zero: there was none. Advisory: any thread may read it, the handler writes.
#[derive(Debug, Default)]
pub struct History {
    /// First page that it brought in.
    first: AtomicU16,
    /// Page after the last one; 0: there was no fault.
    next: AtomicU16,
    /// Its window's order.
    order: AtomicU8,
}

impl History {
    /// What a fault at page `index` (0 to 511) should bring in. `before` and `after` give the history of the blocks on either
    /// side, if there are any; each is asked only for a fault at that border.
    pub fn window<'h>(
        &self,
        index: usize,
        before: impl FnOnce() -> Option<&'h History>,
        after: impl FnOnce() -> Option<&'h History>,
    ) -> Window {
        let (first, next) = (self.first.load(Relaxed) as usize, self.next.load(Relaxed) as usize);
        if next != 0 && next == index {
            return self.goes_on(Direction::Forwards);
        }
        if next != 0 && first == index + 1 {
            return self.goes_on(Direction::Backwards);
        }
        if index == 0
            && let Some(before) = before()
            && before.next.load(Relaxed) as usize == BLOCK_PAGES
        {
            return before.goes_on(Direction::Forwards);
        }
        if index == BLOCK_PAGES - 1
            && let Some(after) = after()
            && after.next.load(Relaxed) != 0
            && after.first.load(Relaxed) == 0
        {
            return after.goes_on(Direction::Backwards);
        }
        Window::ONE
    }

    /// Was all of the block brought in at once?
    pub fn is_walked_through(&self) -> bool {
        self.first.load(Relaxed) == 0 && self.next.load(Relaxed) as usize == BLOCK_PAGES
    }

    fn goes_on(&self, direction: Direction) -> Window {
        Window { order: (self.order.load(Relaxed) + WINDOW_GROWTH).min(WINDOW_ORDER_MAX), direction }
    }

    /// A fault brought in the pages `first..next` of the block, by a window of this order.
    pub fn remember(&self, first: usize, next: usize, order: u8) {
        self.first.store(first as u16, Relaxed);
        self.next.store(next as u16, Relaxed);
        self.order.store(order, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn alone(history: &History, index: usize) -> Window {
        history.window(index, || None, || None)
    }

    /// Orders of the windows that a walk over these pages gets, each window aligned to its size.
    fn walk(pages: impl Iterator<Item = usize>) -> Vec<u8> {
        let history = History::default();
        let mut present = [false; BLOCK_PAGES];
        let mut orders = Vec::new();
        for index in pages {
            if !present[index] {
                let window = alone(&history, index);
                let first = index & !((1 << window.order) - 1);
                present[first..first + (1 << window.order)].fill(true);
                history.remember(first, first + (1 << window.order), window.order);
                orders.push(window.order);
            }
        }
        orders
    }

    #[test]
    fn a_walk_in_either_direction_gets_large_windows() {
        // Each four times as large as the last one, until one reaches the border of the block.
        assert_eq!(walk(0..BLOCK_PAGES), [0, 2, 4, 6, 8, 9]);
        assert_eq!(walk((0..BLOCK_PAGES).rev()), [0, 2, 4, 6, 8, 9]);
    }

    #[test]
    fn a_run_goes_as_far_as_its_window_the_border_and_what_is_wanted() {
        let window = |order, direction| Window { order, direction };
        let (up, down) = (window(2, Direction::Forwards), window(2, Direction::Backwards));
        assert_eq!((up.run(5, 16, |_| true), down.run(5, 16, |_| true)), (5..9, 2..6));
        assert_eq!((up.run(14, 16, |_| true), down.run(1, 16, |_| true)), (14..16, 0..2));
        assert_eq!((up.run(5, 16, |page| page < 7), down.run(5, 16, |page| page > 4)), (5..7, 5..6));
        assert_eq!((up.run(15, 16, |_| true), down.run(0, 16, |_| true)), (15..16, 0..1));
        assert_eq!(Window::ONE.run(5, 16, |_| true), 5..6);
    }

    #[test]
    fn what_is_out_of_order_brings_one_page() {
        assert!(
            walk((0..BLOCK_PAGES).map(|step| step * 37 % BLOCK_PAGES).take(100))
                .iter()
                .all(|&order| order == 0)
        );
        assert_eq!(alone(&History::default(), 0), Window::ONE);
        assert_eq!(alone(&History::default(), BLOCK_PAGES - 1), Window::ONE);
    }

    #[test]
    fn a_walk_goes_on_over_the_border_of_a_block() {
        let (before, here, after) = (History::default(), History::default(), History::default());
        let at = |index| here.window(index, || Some(&before), || Some(&after));
        assert_eq!((at(0), at(BLOCK_PAGES - 1)), (Window::ONE, Window::ONE), "nothing is known there");
        before.remember(496, BLOCK_PAGES, 4);
        assert_eq!(at(0), Window { order: 6, direction: Direction::Forwards });
        before.remember(0, BLOCK_PAGES, WINDOW_ORDER_MAX);
        assert_eq!(at(0), Window { order: WINDOW_ORDER_MAX, direction: Direction::Forwards });
        after.remember(0, 4, 2);
        assert_eq!(at(BLOCK_PAGES - 1), Window { order: 4, direction: Direction::Backwards });
        assert_eq!(at(1), Window::ONE);
    }

    #[test]
    fn both_ends_of_what_was_brought_in_go_on() {
        let history = History::default();
        history.remember(100, 104, 2);
        assert_eq!(alone(&history, 104), Window { order: 4, direction: Direction::Forwards });
        assert_eq!(alone(&history, 99), Window { order: 4, direction: Direction::Backwards });
        assert_eq!(alone(&history, 105), Window::ONE);
        assert_eq!(alone(&history, 98), Window::ONE);
    }
}

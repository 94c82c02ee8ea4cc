use super::*;
use std::vec::Vec;

fn alone(history: &History, index: usize) -> Window {
    history.window(index, || None, || None)
}

fn stride(history: &History, index: usize) -> Option<Stride> {
    history.stride(index, || None, || None)
}

/// The pages that one fault brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Brought {
    Alone,
    Window(u8),
    Strided(u8),
}

/// Some blocks of memory, without any page present at first.
struct Memory {
    blocks: Vec<History>,
    present: Vec<bool>,
}

impl Memory {
    fn of_blocks(blocks: usize) -> Self {
        let present = std::vec![false; blocks * BLOCK_PAGES];
        Memory { blocks: (0..blocks).map(|_| History::default()).collect(), present }
    }

    /// Takes all pages out.
    fn evict(&mut self) {
        self.present.fill(false);
    }

    /// Touches a page; returns `None` if it is present.
    fn touch(&mut self, page: usize) -> Option<Brought> {
        if core::mem::replace(&mut self.present[page], true) {
            return None;
        }
        let (number, index) = (page / BLOCK_PAGES, page % BLOCK_PAGES);
        let history = &self.blocks[number];
        let before = || number.checked_sub(1).map(|number| &self.blocks[number]);
        let after = || self.blocks.get(number + 1);
        let window = history.window(index, before, after);
        let base = number * BLOCK_PAGES;
        if window.order > 0 {
            let first = index & !((1 << window.order) - 1);
            let next = first + (1 << window.order);
            history.remember(first, next, window.order);
            self.present[base + first..base + next].fill(true);
            return Some(Brought::Window(window.order));
        }
        let Some(stride) = history.stride(index, before, after) else {
            history.remember(index, index + 1, 0);
            return Some(Brought::Alone);
        };
        history.remember_stride(index, stride, BLOCK_PAGES);
        stride.pages(index).for_each(|page| self.present[base + page] = true);
        Some(Brought::Strided(stride.ahead))
    }

    fn touch_all(&mut self, pages: impl Iterator<Item = usize>) -> Vec<Brought> {
        pages.filter_map(|page| self.touch(page)).collect()
    }
}

fn windows(orders: &[u8]) -> Vec<Brought> {
    let of = |&order: &u8| if order == 0 { Brought::Alone } else { Brought::Window(order) };
    orders.iter().map(of).collect()
}

/// Pages in random order (splitmix64).
fn at_random(pages: usize) -> impl Iterator<Item = usize> {
    (1..).map(move |number: u64| {
        let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize % pages
    })
}

#[test]
fn a_walk_in_either_direction_gets_large_windows() {
    // Each window is four times as large as the last one, until one reaches the border of the
    // block.
    let grows = windows(&[0, 2, 4, 6, 8, 9]);
    assert_eq!(Memory::of_blocks(1).touch_all(0..BLOCK_PAGES), grows);
    assert_eq!(Memory::of_blocks(1).touch_all((0..BLOCK_PAGES).rev()), grows);
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
    let history = History::default();
    assert_eq!(alone(&history, 0), Window::ONE);
    assert_eq!(alone(&history, BLOCK_PAGES - 1), Window::ONE);
    let mut memory = Memory::of_blocks(16);
    let pages = memory.present.len();
    let brought = memory.touch_all(at_random(pages).take(2000));
    let alone = brought.iter().filter(|&&brought| brought == Brought::Alone).count();
    assert!(alone * 20 > brought.len() * 19, "{alone} of {}", brought.len());
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
    // A single page at the border begins a walk.
    let (before, after) = (History::default(), History::default());
    before.remember(511, BLOCK_PAGES, 0);
    after.remember(0, 1, 0);
    let at = |index| here.window(index, || Some(&before), || Some(&after));
    assert_eq!(at(0), Window { order: 2, direction: Direction::Forwards });
    assert_eq!(at(BLOCK_PAGES - 1), Window { order: 2, direction: Direction::Backwards });
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

#[test]
fn the_window_shrinks_by_a_step_for_each_fault_out_of_order() {
    for (elsewhere, order) in [(0, 9), (1, 8), (2, 6), (3, 4)] {
        let history = History::default();
        history.remember(0, 256, 8);
        // These pages are neither beside another nor equally far apart.
        for page in [300, 340, 470].into_iter().take(elsewhere) {
            assert_eq!(alone(&history, page), Window::ONE);
            assert_eq!(stride(&history, page), None);
            history.remember(page, page + 1, 0);
        }
        assert_eq!(alone(&history, 256), Window { order, direction: Direction::Forwards }, "{elsewhere}");
    }
    // After as many faults as shrink its window to one page, the walk is over.
    let history = History::default();
    history.remember(0, 256, 8);
    [300, 340, 470, 410].into_iter().for_each(|page| history.remember(page, page + 1, 0));
    assert_eq!(alone(&history, 256), Window::ONE);
}

#[test]
fn a_stride_brings_what_it_comes_to_next_and_ever_more_of_it() {
    for (step, expected) in [(8, &[2, 4, 8, 16, 32][..]), (17, &[2, 4, 8, 16]), (150, &[2])] {
        let mut memory = Memory::of_blocks(1);
        let brought = memory.touch_all((0..BLOCK_PAGES).step_by(step));
        let strided = |&ahead: &u8| Brought::Strided(ahead);
        let expected: Vec<_> =
            [Brought::Alone, Brought::Alone].into_iter().chain(expected.iter().map(strided)).collect();
        assert!(brought.starts_with(&expected), "{step}: {brought:?}");
        let mut memory = Memory::of_blocks(1);
        let downwards = memory.touch_all((0..BLOCK_PAGES).rev().step_by(step));
        assert!(downwards.starts_with(&expected), "{step} downwards: {downwards:?}");
    }
    // Much of each piece is wanted: `around.rs` judges the pages around, and they come as one
    // piece.
    let brought = Memory::of_blocks(1).touch_all((0..BLOCK_PAGES).step_by(7));
    assert!(brought.iter().all(|brought| *brought == Brought::Alone), "{brought:?}");
}

#[test]
fn a_stride_goes_on_over_borders_and_brings_nothing_else() {
    for down in [false, true] {
        let mut memory = Memory::of_blocks(64);
        let pages = memory.present.len();
        for first in 0..17 {
            let on_the_way: Vec<_> = (first..pages).step_by(17).collect();
            let touched = on_the_way.len();
            let brought: Vec<_> = if down {
                memory.touch_all(on_the_way.into_iter().rev())
            } else {
                memory.touch_all(on_the_way.into_iter())
            };
            assert!(brought.len() < touched / 15, "{} faults for {touched} touches", brought.len());
            let there = memory.present.iter().filter(|&&present| present).count();
            // At the end of a stride's memory, and where it begins anew, the stride may go too far,
            // or to the pages of the last one.
            assert!(there < touched + touched / 10, "{there} pages came for {touched} touches");
            memory.evict();
        }
    }
}

#[test]
fn a_strides_window_shrinks_by_a_step_for_each_fault_out_of_order() {
    let history = History::default();
    history.remember_stride(0, Stride { step: 7, ahead: 16 }, 16);
    history.remember(300, 301, 0);
    assert_eq!(stride(&history, 17 * 7), Some(Stride { step: 7, ahead: 16 }), "half as many, and twice that");
    history.remember(200, 201, 0);
    assert_eq!(stride(&history, 17 * 7), Some(Stride { step: 7, ahead: 8 }));
    for page in [480, 333, 410] {
        history.remember(page, page + 1, 0);
    }
    assert_eq!(stride(&history, 17 * 7), None, "it is over");
}

#[test]
fn a_stride_that_was_cut_off_goes_on_there_with_a_window_of_what_came() {
    let history = History::default();
    history.remember_stride(0, Stride { step: 7, ahead: 32 }, 3);
    assert_eq!(stride(&history, 28), Some(Stride { step: 7, ahead: 6 }));
    // The stride is not cut off at the end of the block.
    history.remember_stride(490, Stride { step: 7, ahead: 32 }, 3);
    let after = History::default();
    assert_eq!(after.stride(6, || Some(&history), || None), Some(Stride { step: 7, ahead: 64 }));
}

#[test]
fn a_stride_passes_over_a_page_that_is_there() {
    let history = History::default();
    history.remember_stride(0, Stride { step: 5, ahead: 4 }, 4);
    for (index, is_next) in [(25, true), (30, true), (35, false), (20, false), (24, false)] {
        assert_eq!(stride(&history, index).is_some(), is_next, "{index}");
    }
}

/// The phases are in order, at random, in order, strided, at random. Each phase gets its window
/// after a few dozen faults at most.
#[test]
fn a_change_of_phase_is_noticed_within_a_few_dozen_faults() {
    let few = 24;
    let mut memory = Memory::of_blocks(8);
    let pages = memory.present.len();
    for round in 0..3 {
        memory.evict();
        let in_order = memory.touch_all(0..pages);
        let late: Vec<_> = in_order.iter().skip(few).collect();
        assert!(in_order.len() <= few || late.iter().all(|&&b| b == Brought::Window(9)), "{round}: {late:?}");
        memory.evict();
        let random = memory.touch_all(at_random(pages).take(600));
        let extra = random.iter().filter(|&&brought| brought != Brought::Alone).count();
        assert!(extra <= few, "{round}: {extra} of {} brought more than their page", random.len());
        assert!(memory.blocks.iter().all(History::is_at_random), "{round}");
        memory.evict();
        let in_order = memory.touch_all(0..pages);
        assert!(in_order.len() <= few + 8, "{round}: {} faults in order", in_order.len());
        assert!(memory.blocks.iter().skip(1).all(|block| !block.is_at_random()), "{round}");
        memory.evict();
        let strided = memory.touch_all((0..pages).step_by(9));
        assert!(strided.len() <= pages / 9 / 8 + few, "{round}: {} faults at a stride", strided.len());
    }
}

#[test]
fn a_block_is_at_random_after_some_faults_out_of_order_and_no_longer_after_some_in_order() {
    let history = History::default();
    let apart: Vec<_> = (0..12).map(|number| number * number * 3 % 509).collect();
    for (number, &page) in apart.iter().enumerate() {
        assert_eq!(history.is_at_random(), number >= AT_RANDOM.into(), "{number}");
        history.remember(page, page + 1, 0);
    }
    history.remember(0, 4, 2);
    history.remember(4, 16, 4);
    assert!(!history.is_at_random());
}

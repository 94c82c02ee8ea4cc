//! The recent faults of a block, and the decisions that follow from them: how many pages a fault
//! brings along, on which side or at which stride, and in folios of which size the block leaves.
//!
//! A fault beside the pages that the last fault of a walk brought in continues the walk in that
//! direction; the window then grows fourfold, up to 2 MiB. Three faults equally far apart are a
//! stride: the pages that it comes to next come along, twice as many each time. Any other fault is
//! out of order: it brings one page, makes the windows of walk and stride smaller by a step each,
//! and begins a walk if the next fault is beside it. So a single fault elsewhere does not end a
//! walk, and a walk that is over is forgotten after a few faults.

use crate::units::BLOCK_PAGES;
use core::ops::Range;
use core::sync::atomic::{AtomicI16, AtomicU8, AtomicU16, Ordering::Relaxed};

/// Largest window, as a power of two of pages: a block of 2 MiB.
pub const WINDOW_ORDER_MAX: u8 = 9;
/// How much the window's order grows at each fault that continues the walk, and shrinks at each
/// fault out of order.
const WINDOW_STEP: u8 = 2;
/// Pages that come along when a stride is first recognised, and at most.
const STRIDE_BEGINS: u8 = 2;
const STRIDE_MAX: u8 = 64;
/// Least stride. Nearer faults are a walk with gaps: much of each piece is wanted, so its other
/// pages come along as a whole piece.
const STEP_MIN: u16 = 8;
/// Faults out of order from which on a block counts as touched at random, and the most that are
/// counted. A fault in order takes away twice its window's order, or [`STRIDED`] for a stride.
const AT_RANDOM: u8 = 8;
const OUT_OF_ORDER_MAX: u8 = 16;
const STRIDED: u8 = 4;

/// The side of a fault on which the pages lie that will be wanted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// At higher addresses.
    Forwards,
    /// At lower addresses.
    Backwards,
}

/// The pages that a fault should bring in: 2^`order` pages that contain its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// 0 to [`WINDOW_ORDER_MAX`]; 0 for an access out of order.
    pub order: u8,
    /// The side on which the other pages lie.
    pub direction: Direction,
}

impl Window {
    /// The faulting page alone.
    pub const ONE: Window = Window { order: 0, direction: Direction::Forwards };

    /// Returns the pages of this window from page `at` on, one after the other in its direction, as
    /// far as they are `wanted` and within the first `pages`. Page `at` itself is included without
    /// being asked about.
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

/// A stride that a fault continues. It tells which pages the program will come to next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Pages from one touch to the next, 8 to 511 in either direction.
    step: i16,
    /// How many pages come along, at most.
    ahead: u8,
}

impl Stride {
    /// Returns the pages of the block that come along with its page `index`, in the order of the
    /// stride.
    pub fn pages(self, index: usize) -> impl Iterator<Item = usize> {
        let at = move |number: isize| index.checked_add_signed(number * isize::from(self.step));
        (1..=isize::from(self.ahead)).map_while(at).take_while(|&page| page < BLOCK_PAGES)
    }

    fn grown(self) -> Self {
        Stride { ahead: (self.ahead * 2).clamp(STRIDE_BEGINS, STRIDE_MAX), ..self }
    }
}

/// The range of pages `first..next`, in two halves that are read and written apart. All-zero:
/// empty.
#[derive(Debug, Default)]
struct Pages {
    first: AtomicU16,
    next: AtomicU16,
}

impl Pages {
    fn set(&self, first: usize, next: usize) {
        self.first.store(first as u16, Relaxed);
        self.next.store(next as u16, Relaxed);
    }
    fn end(&self) -> usize {
        self.next.load(Relaxed).into()
    }
    fn starts_at(&self, index: usize) -> bool {
        self.end() != 0 && usize::from(self.first.load(Relaxed)) == index
    }
    /// Returns the direction in which a fault at `index` continues this range.
    fn continued_by(&self, index: usize) -> Option<Direction> {
        match self.end() {
            0 => None,
            end if end == index => Some(Direction::Forwards),
            _ => self.starts_at(index + 1).then_some(Direction::Backwards),
        }
    }
}

/// The pages that the last faults of a block brought in. All-zero: there were none. Advisory: any
/// thread may read it, only the handler writes.
#[derive(Debug, Default)]
pub struct History {
    /// The pages that the last window of the walk brought in, and its order; 0: there is no walk.
    walk: Pages,
    order: AtomicU8,
    /// The pages that the last fault out of order brought in.
    apart: Pages,
    /// The distance of its page from that of the fault out of order before it; 0: there was none.
    apart_step: AtomicI16,
    /// The stride: the last page that it brought in, the distance from one page to the next, and
    /// how many come at a time; 0: there is no stride.
    stride_last: AtomicU16,
    stride_step: AtomicI16,
    stride_ahead: AtomicU8,
    out_of_order: AtomicU8,
}

impl History {
    /// Returns the window of a fault at page `index` (0 to 511). `before` and `after` give the
    /// history of the blocks on either side, if there are any; each is called only for a fault at
    /// that border.
    pub fn window<'h>(
        &self,
        index: usize,
        before: impl FnOnce() -> Option<&'h History>,
        after: impl FnOnce() -> Option<&'h History>,
    ) -> Window {
        if let Some(direction) = self.walk.continued_by(index) {
            return self.goes_on(direction);
        }
        if let Some(direction) = self.apart.continued_by(index) {
            return Window { order: WINDOW_STEP, direction };
        }
        if index == 0
            && let Some(before) = before()
            && let Some(window) = before.goes_on_behind(BLOCK_PAGES)
        {
            return window;
        }
        if index == BLOCK_PAGES - 1
            && let Some(after) = after()
            && let Some(window) = after.goes_on_before_first()
        {
            return window;
        }
        Window::ONE
    }

    /// Returns the stride that a fault out of order at page `index` continues. `before` and `after`
    /// are as in [`window`](Self::window).
    pub fn stride<'h>(
        &self,
        index: usize,
        before: impl FnOnce() -> Option<&'h History>,
        after: impl FnOnce() -> Option<&'h History>,
    ) -> Option<Stride> {
        let (here, block) = (index as isize, BLOCK_PAGES as isize);
        if let Some(stride) = self.stride_to(here) {
            return Some(stride.grown());
        }
        let step = self.apart_step.load(Relaxed);
        if step != 0 && self.apart.end() != 0 && self.apart_page() + isize::from(step) == here {
            return Some(Stride { step, ahead: 0 }.grown());
        }
        let came_up = before().and_then(|before| before.stride_to(here + block));
        came_up.or_else(|| after()?.stride_to(here - block)).map(Stride::grown)
    }

    /// Whether all of the block was brought in at once.
    pub fn is_walked_through(&self) -> bool {
        self.walk.starts_at(0) && self.walk.end() == BLOCK_PAGES
    }

    /// Whether the pages are touched at random, so that the block should leave in single pages. The
    /// answer is no until this is known.
    pub fn is_at_random(&self) -> bool {
        self.out_of_order.load(Relaxed) >= AT_RANDOM
    }

    /// Records that a fault brought in the pages `first..next` of the block, by a window of this
    /// order; 0: the fault was out of order.
    pub fn remember(&self, first: usize, next: usize, order: u8) {
        if order > 0 {
            self.walk.set(first, next);
            self.order.store(order, Relaxed);
            self.apart.set(0, 0);
            self.apart_step.store(0, Relaxed);
            self.in_order(2 * order);
            return;
        }
        let (page, last) = (first as isize, self.apart_page());
        let step = if self.apart.end() != 0 { (page - last) as i16 } else { 0 };
        self.apart_step.store(if step.unsigned_abs() < STEP_MIN { 0 } else { step }, Relaxed);
        self.apart.set(first, next);
        let out_of_order = self.out_of_order.load(Relaxed);
        self.out_of_order.store((out_of_order + 1).min(OUT_OF_ORDER_MAX), Relaxed);
        let order = self.order.load(Relaxed).saturating_sub(WINDOW_STEP);
        self.order.store(order, Relaxed);
        if order == 0 {
            self.walk.set(0, 0);
        }
        self.stride_ahead.store(self.stride_ahead.load(Relaxed) / 2, Relaxed);
    }

    /// Records that a fault at page `index` has brought in the first `came` of the pages that this
    /// stride comes to next. `came` is all of those within the block, or as many as no thread had
    /// to wait for; then the stride's window becomes that many.
    pub fn remember_stride(&self, index: usize, stride: Stride, came: usize) {
        let wanted = stride.pages(index).count();
        let last = stride.pages(index).take(came).last().unwrap_or(index);
        let ahead = if came < wanted { (came as u8).max(1) } else { stride.ahead };
        self.stride_last.store(last as u16, Relaxed);
        self.stride_step.store(stride.step, Relaxed);
        self.stride_ahead.store(ahead, Relaxed);
        self.apart.set(0, 0);
        self.apart_step.store(0, Relaxed);
        self.in_order(STRIDED);
    }

    fn in_order(&self, weight: u8) {
        let out_of_order = self.out_of_order.load(Relaxed);
        self.out_of_order.store(out_of_order.saturating_sub(weight), Relaxed);
    }

    fn apart_page(&self) -> isize {
        self.apart.first.load(Relaxed) as isize
    }

    /// Returns the stride if it comes to this page soon. The page may be the next but one, where
    /// the next page is there already.
    fn stride_to(&self, index: isize) -> Option<Stride> {
        let stride = Stride { step: self.stride_step.load(Relaxed), ahead: self.stride_ahead.load(Relaxed) };
        let (last, step) = (self.stride_last.load(Relaxed) as isize, isize::from(stride.step));
        let is_near = index == last + step || index == last + 2 * step;
        (stride.ahead != 0 && is_near).then_some(stride)
    }

    fn goes_on(&self, direction: Direction) -> Window {
        Window { order: (self.order.load(Relaxed) + WINDOW_STEP).min(WINDOW_ORDER_MAX), direction }
    }

    /// Returns the window of a fault on the first page of the next block.
    fn goes_on_behind(&self, end: usize) -> Option<Window> {
        if self.walk.end() == end {
            return Some(self.goes_on(Direction::Forwards));
        }
        let ends_there = self.apart.end() == end;
        ends_there.then_some(Window { order: WINDOW_STEP, direction: Direction::Forwards })
    }

    /// Returns the window of a fault on the last page of the block before.
    fn goes_on_before_first(&self) -> Option<Window> {
        if self.walk.starts_at(0) {
            return Some(self.goes_on(Direction::Backwards));
        }
        let starts_there = self.apart.starts_at(0);
        starts_there.then_some(Window { order: WINDOW_STEP, direction: Direction::Backwards })
    }
}

#[cfg(test)]
mod tests;

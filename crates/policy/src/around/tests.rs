use super::*;
use std::collections::VecDeque;
use std::vec::Vec;

const PIECE: usize = 16;

/// Memory of which only a part fits. The page that came first leaves first, unless it was touched
/// since.
struct Memory {
    around: Around,
    resident: Vec<bool>,
    touched: Vec<bool>,
    clock: VecDeque<usize>,
    room: usize,
    random: u64,
    /// Faults out of order, and those of them that brought the pages around.
    faults: usize,
    brought: usize,
}

impl Memory {
    fn new(pages: usize, room: usize) -> Self {
        let around = Around::default();
        around.set_room(room as u64);
        let (resident, touched) = (std::vec![false; pages], std::vec![false; pages]);
        Memory { around, resident, touched, clock: VecDeque::new(), room, random: 1, faults: 0, brought: 0 }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % below
    }

    fn touch(&mut self, page: usize) {
        self.touched[page] = true;
        if self.resident[page] {
            return;
        }
        let (piece, first) = (page / PIECE, page / PIECE * PIECE);
        let away = (0..PIECE).fold(0, |away, at| away | Pages::from(!self.resident[first + at]) << at);
        let alone = 1 << (page - first);
        self.faults += 1;
        let brings = self.around.brings(piece, away & !alone);
        self.brought += usize::from(brings);
        let pages = if brings { away } else { alone };
        self.around.came_back(piece, page - first, pages);
        for at in (first..first + PIECE).filter(|at| pages >> (at - first) & 1 != 0) {
            self.resident[at] = true;
            self.touched[at] = at == page;
            self.clock.push_back(at);
        }
        while self.clock.len() > self.room {
            let oldest = self.clock.pop_front().unwrap();
            if core::mem::take(&mut self.touched[oldest]) {
                self.clock.push_back(oldest);
            } else {
                self.resident[oldest] = false;
                self.around.displaced(oldest / PIECE, 1 << (oldest % PIECE));
            }
        }
    }

    /// Returns how many of 100 faults from here on brought the pages around.
    fn share_brought(&mut self, mut touches: impl FnMut(&mut Self)) -> usize {
        (self.faults, self.brought) = (0, 0);
        touches(self);
        assert!(self.faults > 1000, "{}", self.faults);
        100 * self.brought / self.faults
    }

    fn touch_randomly(&mut self, touches: usize, pages: core::ops::Range<usize>) {
        for _ in 0..touches {
            let page = pages.start + self.random(pages.len());
            self.touch(page);
        }
    }
}

#[test]
fn random_touches_bring_one_page() {
    let mut memory = Memory::new(160_000, 40_000);
    assert_eq!(memory.share_brought(|memory| memory.touch_randomly(300_000, 0..160_000)), 0);
}

#[test]
fn where_all_is_hot_and_does_not_quite_fit_one_page_comes() {
    let mut memory = Memory::new(48_000, 40_000);
    memory.touch_randomly(200_000, 0..48_000);
    let share = memory.share_brought(|memory| memory.touch_randomly(400_000, 0..48_000));
    assert!(share < 10, "{share}");
}

#[test]
fn where_the_working_set_moves_what_is_around_comes_along() {
    let mut memory = Memory::new(400_000, 40_000);
    let mut at = 0;
    let mut moves = |memory: &mut Memory| {
        for _ in 0..10 {
            memory.touch_randomly(100_000, at..at + 20_000);
            at += 20_000;
        }
    };
    memory.share_brought(&mut moves);
    let share = memory.share_brought(&mut moves);
    assert!(share > 80, "{share}");
}

#[test]
fn after_a_change_it_is_found_out_anew() {
    let mut memory = Memory::new(400_000, 40_000);
    for _ in 0..2 {
        for part in 0..10 {
            memory.touch_randomly(100_000, part * 20_000..(part + 1) * 20_000);
        }
        assert_ne!(memory.around.is_worth_it.load(Relaxed), 0);
        memory.touch_randomly(100_000, 0..400_000);
        assert_eq!(memory.share_brought(|memory| memory.touch_randomly(100_000, 0..400_000)), 0);
    }
}

#[test]
fn where_all_becomes_hot_and_does_not_fit_it_is_noticed() {
    let mut memory = Memory::new(400_000, 40_000);
    for part in 0..10 {
        memory.touch_randomly(100_000, part * 20_000..(part + 1) * 20_000);
    }
    assert_ne!(memory.around.is_worth_it.load(Relaxed), 0);
    for pages in [44_000, 48_000, 60_000, 80_000] {
        memory.touch_randomly(200_000, 0..pages);
        let share = memory.share_brought(|memory| memory.touch_randomly(400_000, 0..pages));
        assert!(share < 10, "{pages}: {share}");
    }
}

#[test]
fn of_what_is_worth_it_one_fault_of_many_brings_its_page_alone() {
    let around = Around::default();
    around.is_worth_it.store(1, Relaxed);
    let alone = (0..10 * (ALONE as usize + 1)).filter(|&piece| !around.brings(piece, 0b110));
    assert_eq!(alone.count(), 10);
    around.is_worth_it.store(0, Relaxed);
    assert!((0..100 * SAMPLES).all(|piece| !around.brings(piece, 0b110)));
    around.is_worth_it.store(1, Relaxed);
    assert!((0..1000).all(|piece| around.brings(piece, 0b110)), "there is no place to watch more");
}

#[test]
fn a_piece_is_watched_until_the_first_touch_or_the_end() {
    let around = Around::default();
    let sums = || [&around.neighbours, &around.displaced].map(Tally::sums);
    let later = |faults: u32| around.faults.fetch_add(faults, Relaxed);
    around.brings(5, 0b1110);
    around.displaced(6, 0b11);
    around.displaced(5, 0b1);
    later(9);
    // The three touches: the page beside the watched ones; one of them; another one afterwards.
    for (touched, pages) in [(0, 0b1), (1, 0b10), (2, 0b100)] {
        around.came_back(5, touched, pages);
    }
    assert_eq!(sums(), [(1, 33), (0, 0)]);
    // The watched pages come along with another page; in a burst; too late.
    around.came_back(6, 2, 0b110);
    assert_eq!(sums(), [(1, 33), (0, 26)]);
    around.displaced(7, 0b111);
    around.came_back(7, 0, 0b1);
    later(HORIZON_MIN as u32);
    around.displaced(7, 0b1);
    assert_eq!(sums(), [(1, 33), (0, 26 + 2 * HORIZON_MIN)], "of two pages");
}

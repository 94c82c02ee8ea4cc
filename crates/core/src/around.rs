//! Is it worth bringing a whole 64 KiB piece back for one page of it that is touched out of order?
//!
//! It is where what lies around is wanted sooner than what leaves for it: where the working set moves, or where single pages of old
//! data stand between it and the pages that it lacks. It is not where single pages are touched at random, nor where everything is
//! equally hot and does not fit: there both are wanted equally soon. So both are counted, and in the same way, for both are away until
//! somebody touches them: *neighbours*, which did not come along with a page of their piece, and *displaced* pages, which have just
//! been written back. How many of the one and of the other are touched within the next faults?
//!
//! GNU sort in half of its need, at the beginning of its last merge: of the neighbours 1.5 to 8 times as many as of the displaced. The same
//! with its store counted to the limit, where it thrashes, and a Python array touched at random: as many, within a third.
//!
//! As long as it is not worth it, each fault out of order is such an experiment. Where it is, one fault of several brings its page alone
//! to go on measuring; the more rarely, the longer it has been.

use crate::around::Kind::{Displaced, Neighbours};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Pages of a piece, one bit each.
pub type Pages = u16;

/// Pieces that are watched at once, at most.
const SAMPLES: usize = 1024;
/// Faults for which a piece is watched: a 64th of the pages that fit, between these. (With all around it, a page stays about a 16th of the
/// pages that fit, in faults: what is watched for less stands for that.)
const HORIZON_PART: u64 = 64;
const HORIZON_MIN: u64 = 512;
const HORIZON_MAX: u64 = 1 << 14;
/// Touches within so many faults come in a burst: they say nothing about those later.
const BURST: u16 = 16;
/// Pages that must have been watched for a verdict. At twice as many, all that was counted counts half.
const VERDICT_PAGES: u32 = 2048;
/// One in so many must be wanted while it would stay; below that it costs more to bring them than it spares faults.
const LEAST_SHARE: u64 = 8;
/// So many times as many neighbours as displaced pages must be touched, in quarters: for the verdict, and for it to stay.
const LEAST_RATIO: u64 = 8;
const LEAST_RATIO_TO_STAY: u64 = 5;
/// Where it is worth it, one fault of so many brings its page alone: at first and in the end.
const ALONE_FIRST: u32 = 8;
const ALONE_LAST: u32 = 64;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Neighbours,
    Displaced,
}

/// Pages of a piece that are away and watched: `piece << 33 | kind << 32 | pages << 16 | fault at which it began`. No pages: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample(u64);

impl Sample {
    fn new(piece: usize, kind: Kind, pages: Pages, began: u16) -> Self {
        let kind = u64::from(kind == Displaced);
        Sample((piece as u64) << 33 | kind << 32 | u64::from(pages) << 16 | u64::from(began))
    }
    fn piece(self) -> usize {
        (self.0 >> 33) as usize
    }
    fn kind(self) -> Kind {
        if self.0 >> 32 & 1 != 0 { Displaced } else { Neighbours }
    }
    fn pages(self) -> Pages {
        (self.0 >> 16) as Pages
    }
    fn age(self, now: u16) -> u16 {
        now.wrapping_sub(self.0 as u16)
    }
    fn without(self, pages: Pages) -> Self {
        Sample(self.0 & !(u64::from(pages) << 16))
    }
}

/// What became of the pages of a kind.
#[derive(Debug, Default)]
struct Tally {
    watched: AtomicU32,
    touched_in_burst: AtomicU32,
    touched_later: AtomicU32,
}

impl Tally {
    fn halve(&self) {
        for sum in [&self.watched, &self.touched_in_burst, &self.touched_later] {
            sum.fetch_sub(sum.load(Relaxed).div_ceil(2), Relaxed);
        }
    }
    fn is_full(&self) -> bool {
        self.watched.load(Relaxed) >= 2 * VERDICT_PAGES
    }
}

/// The measure and its verdict. All-zero: nothing is known, and it is not worth it. The handler asks and says what came back; the evictor says
/// what left. Advisory: what races here may cost a sample.
#[derive(Debug)]
pub struct Around {
    samples: [AtomicU64; SAMPLES],
    /// Faults that brought something back from a device.
    faults: AtomicU32,
    neighbours: Tally,
    displaced: Tally,
    is_worth_it: AtomicU32,
    /// Faults out of order until one brings its page alone, and from one to the next.
    until_alone: AtomicU32,
    between_alone: AtomicU32,
    /// Pages that fit.
    room: AtomicU64,
}

impl Default for Around {
    fn default() -> Self {
        Around {
            samples: [const { AtomicU64::new(0) }; SAMPLES],
            faults: AtomicU32::default(),
            neighbours: Tally::default(),
            displaced: Tally::default(),
            is_worth_it: AtomicU32::default(),
            until_alone: AtomicU32::default(),
            between_alone: AtomicU32::default(),
            room: AtomicU64::default(),
        }
    }
}

impl Around {
    /// So many pages fit.
    pub fn set_room(&self, pages: u64) {
        self.room.store(pages, Relaxed);
    }

    /// A fault out of order in piece number `piece` (address by 64 KiB), of which `neighbours` are away too: do they come along? Handler.
    pub fn brings(&self, piece: usize, neighbours: Pages) -> bool {
        let watched = self.watched(piece);
        if watched.is_some_and(|sample| sample.piece() == piece && sample.kind() == Neighbours) {
            return false;
        }
        if self.is_worth_it.load(Relaxed) != 0 {
            let left = self.until_alone.load(Relaxed);
            if left > 0 {
                self.until_alone.store(left - 1, Relaxed);
                return true;
            }
            self.until_alone.store(self.between_alone.load(Relaxed), Relaxed);
        }
        if watched.is_none() && neighbours != 0 {
            self.watch(piece, Neighbours, neighbours);
            self.judge();
        }
        false
    }

    /// A fault on the page `touched` of a piece has brought back its `pages`, from a device. Handler.
    pub fn came_back(&self, piece: usize, touched: usize, pages: Pages) {
        let now = self.faults.fetch_add(1, Relaxed) as u16;
        let Some(sample) = self.watched(piece).filter(|sample| sample.piece() == piece) else { return };
        if sample.pages() >> touched & 1 != 0 {
            let tally = self.tally(sample.kind());
            let is_burst = sample.age(now) < BURST;
            (if is_burst { &tally.touched_in_burst } else { &tally.touched_later }).fetch_add(1, Relaxed);
        }
        self.slot(piece).store(sample.without(pages).0, Relaxed);
    }

    /// These pages of a piece have just been written back. Evictor.
    pub fn displaced(&self, piece: usize, pages: Pages) {
        if pages != 0 && self.watched(piece).is_none() {
            self.watch(piece, Displaced, pages);
        }
    }

    fn tally(&self, kind: Kind) -> &Tally {
        match kind {
            Neighbours => &self.neighbours,
            Displaced => &self.displaced,
        }
    }

    fn slot(&self, piece: usize) -> &AtomicU64 {
        // Fibonacci hashing: neighbouring pieces fall far apart.
        let hash = (piece as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.samples[(hash >> (64 - SAMPLES.ilog2())) as usize]
    }

    /// What is watched in the place of `piece`, be it this piece or another.
    fn watched(&self, piece: usize) -> Option<Sample> {
        let sample = Sample(self.slot(piece).load(Relaxed));
        let is_over = u64::from(sample.age(self.faults.load(Relaxed) as u16)) >= self.horizon();
        (sample.pages() != 0 && !is_over).then_some(sample)
    }

    fn watch(&self, piece: usize, kind: Kind, pages: Pages) {
        let sample = Sample::new(piece, kind, pages, self.faults.load(Relaxed) as u16);
        self.slot(piece).store(sample.0, Relaxed);
        self.tally(kind).watched.fetch_add(pages.count_ones(), Relaxed);
    }

    fn horizon(&self) -> u64 {
        (self.room.load(Relaxed) / HORIZON_PART).clamp(HORIZON_MIN, HORIZON_MAX)
    }

    fn judge(&self) {
        let get = |sum: &AtomicU32| u64::from(sum.load(Relaxed));
        let watched = get(&self.neighbours.watched);
        if watched < u64::from(VERDICT_PAGES) {
            return;
        }
        let (in_burst, later) = (get(&self.neighbours.touched_in_burst), get(&self.neighbours.touched_later));
        let (displaced, away) = (&self.displaced, get(&self.displaced.watched).max(1));
        let displaced = get(&displaced.touched_in_burst) + get(&displaced.touched_later);
        // What comes along stays for longer than it is watched here.
        let stays = (self.room.load(Relaxed) / 16 / self.horizon()).max(1);
        let was = self.is_worth_it.load(Relaxed) != 0;
        let least = if was { LEAST_RATIO_TO_STAY } else { LEAST_RATIO };
        let is_sooner = 4 * (in_burst + later) * away >= least * displaced * watched;
        let is_soon = LEAST_SHARE * (in_burst + stays * later) >= watched;
        let is = is_sooner && is_soon;
        if is != was {
            self.is_worth_it.store(u32::from(is), Relaxed);
            self.between_alone.store(ALONE_FIRST, Relaxed);
            self.until_alone.store(ALONE_FIRST, Relaxed);
        }
        if self.displaced.is_full() {
            self.displaced.halve();
        }
        if self.neighbours.is_full() {
            self.neighbours.halve();
            if is {
                let between = self.between_alone.load(Relaxed);
                self.between_alone.store((between * 2).min(ALONE_LAST), Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    const PIECE: usize = 16;

    /// Memory of which only a part fits; the page that came first leaves first, unless it was touched since.
    struct Memory {
        around: Around,
        resident: Vec<bool>,
        touched: Vec<bool>,
        clock: VecDeque<usize>,
        room: usize,
        random: u64,
        /// Faults out of order, and those of them that brought what is around.
        faults: usize,
        brought: usize,
    }

    impl Memory {
        fn new(pages: usize, room: usize) -> Self {
            let around = Around::default();
            around.set_room(room as u64);
            let (resident, touched) = (std::vec![false; pages], std::vec![false; pages]);
            Memory {
                around,
                resident,
                touched,
                clock: VecDeque::new(),
                room,
                random: 1,
                faults: 0,
                brought: 0,
            }
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

        /// Of 100 faults from here on, how many brought what is around?
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
    fn a_piece_that_is_watched_stays_apart_until_its_time_is_over() {
        let around = Around::default();
        let later = |faults: u32| around.faults.fetch_add(faults, Relaxed);
        assert!(!around.brings(5, 0b110));
        around.is_worth_it.store(1, Relaxed);
        around.between_alone.store(2, Relaxed);
        around.until_alone.store(2, Relaxed);
        assert!(!around.brings(5, 0b110), "it is watched");
        assert_eq!([6, 6, 7, 7].map(|piece| around.brings(piece, 0b110)), [true, true, false, false]);
        later(HORIZON_MIN as u32);
        assert!(around.brings(5, 0b110) && around.brings(7, 0b110));
    }

    #[test]
    fn each_page_is_counted_once_and_only_while_it_is_away() {
        let around = Around::default();
        let sums = |tally: &Tally| {
            [&tally.watched, &tally.touched_in_burst, &tally.touched_later].map(|sum| sum.load(Relaxed))
        };
        around.brings(5, 0b1110);
        around.displaced(6, 0b11);
        around.displaced(5, 0b1);
        assert_eq!((sums(&around.neighbours), sums(&around.displaced)), ([3, 0, 0], [2, 0, 0]));
        // The page itself; a neighbour; the same once more; one that comes along with another, afterwards.
        for (touched, pages) in [(0, 0b1), (1, 0b10), (1, 0b10), (2, 0b1100), (3, 0b1000)] {
            around.came_back(5, touched, pages);
        }
        around.faults.fetch_add(u32::from(BURST), Relaxed);
        around.came_back(6, 0, 0b1);
        assert_eq!((sums(&around.neighbours), sums(&around.displaced)), ([3, 2, 0], [2, 0, 1]));
        around.faults.fetch_add(HORIZON_MIN as u32, Relaxed);
        around.came_back(6, 1, 0b10);
        assert_eq!(sums(&around.displaced), [2, 0, 1], "too late");
    }
}

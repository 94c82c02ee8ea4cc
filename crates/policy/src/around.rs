//! Whether bringing a 64 KiB piece back as a whole pays, for one page of it that is touched out of
//! order.
//!
//! It pays where the pages around are wanted sooner than the pages that leave for them: where the
//! working set moves, or where single pages of old data stand between it and the pages that it
//! lacks. It does not pay where single pages are touched at random, nor where everything is equally
//! hot and does not fit: there both are wanted equally soon. So both are counted, and in the same
//! way, because both are away until a thread touches them: *neighbours*, which did not come along
//! with a page of their piece, and *displaced* pages, which have just been written back. The
//! comparison is how soon either is touched.
//!
//! GNU sort in half of the memory that it needs, at the beginning of its last merge, touches
//! neighbours 1.5 to 8 times as soon as displaced pages. The same sort with its store counted to
//! the limit, where it thrashes, and a Python array touched at random touch them as soon, within a
//! third.
//!
//! *How soon* is touches for each page and fault for which the page was watched. A piece is watched
//! until the first touch, after which it is like any other, so watching costs one fault for each
//! piece where all of it is wanted. As long as bringing the piece does not pay, each fault out of
//! order is such an experiment, if a cell is free; where it pays, one of several faults is.

use crate::around::Watched::{Displaced, Neighbours};
use crate::units::{ADDRESS_BITS, PIECE};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The pages of a piece, one bit each.
pub type Pages = u16;

/// Pieces that are watched at once, at most.
const SAMPLES: usize = 1024;
/// Faults for which a piece is watched: a 64th of the pages that fit, between these bounds.
const HORIZON_PART: u64 = 64;
const HORIZON_MIN: u64 = 512;
const HORIZON_MAX: u64 = 1 << 14;
/// A touch within this many faults is the other half of the access that began the watch. It says
/// nothing about the rest, which goes on being watched.
const BURST: u16 = 4;
/// A page that came along stays for about as many faults as pages fit, divided by this: by then as
/// many pages as fit have come since.
const STAY_PART: u64 = 16;
/// One page of this many must be wanted while it would stay. Below that, bringing the pages costs
/// more than it spares faults.
const LEAST_SHARE: u64 = 4;
/// A verdict needs this many touched neighbours, or as many that were expected at [`LEAST_SHARE`].
/// At twice as many, all counts are halved.
const VERDICT_TOUCHES: u64 = 64;
/// How many times as soon as displaced pages neighbours must be touched, in quarters: to begin, and
/// to go on.
const LEAST_RATIO: u64 = 8;
const LEAST_RATIO_TO_GO_ON: u64 = 6;
/// Where bringing pays, one fault of this many brings its page alone.
const ALONE: u32 = 16;

/// The pages that a sample watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Neighbours,
    Displaced,
}

/// Watched pages of a piece that are away: `piece << 32 | watched << 31 | pages << 15 | first
/// fault`. No pages: the cell is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample(u64);

/// Bits of the number of the first fault.
const FAULT_BITS: u32 = 15;
const PAGES_SHIFT: u32 = FAULT_BITS;
const WATCHED_SHIFT: u32 = PAGES_SHIFT + Pages::BITS;
const PIECE_SHIFT: u32 = WATCHED_SHIFT + 1;
const _: () = assert!(PIECE_SHIFT + ADDRESS_BITS - PIECE.ilog2() <= u64::BITS);
// Each cell is looked at once in so many faults as there are cells: no age goes round.
const _: () = assert!(HORIZON_MAX + SAMPLES as u64 <= 1 << FAULT_BITS);

impl Sample {
    const NONE: Sample = Sample(0);

    fn new(piece: usize, watched: Watched, pages: Pages, began: u16) -> Self {
        let watched = u64::from(watched == Displaced);
        let began = u64::from(began) & ((1 << FAULT_BITS) - 1);
        Sample(
            (piece as u64) << PIECE_SHIFT
                | watched << WATCHED_SHIFT
                | u64::from(pages) << PAGES_SHIFT
                | began,
        )
    }
    fn piece(self) -> usize {
        (self.0 >> PIECE_SHIFT) as usize
    }
    fn watched(self) -> Watched {
        if self.0 >> WATCHED_SHIFT & 1 != 0 { Displaced } else { Neighbours }
    }
    fn pages(self) -> Pages {
        (self.0 >> PAGES_SHIFT) as Pages
    }
    /// Returns the sample without these pages.
    fn without(self, pages: Pages) -> Self {
        match self.pages() & !pages {
            0 => Sample::NONE,
            _ => Sample(self.0 & !(u64::from(pages) << PAGES_SHIFT)),
        }
    }
    fn age(self, now: u16) -> u16 {
        now.wrapping_sub(self.0 as u16) & ((1 << FAULT_BITS) - 1)
    }
}

/// Whether a cell has been exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    Done,
    /// Another thread was faster.
    Lost,
}

/// Whether pages are watched from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Begun,
    /// There are no pages to watch, or another sample has the cell.
    NotBegun,
}

fn exchange(cell: &AtomicU64, before: Sample, after: Sample) -> Exchange {
    match cell.compare_exchange(before.0, after.0, Relaxed, Relaxed) {
        Ok(_) => Exchange::Done,
        Err(_) => Exchange::Lost,
    }
}

/// The sums over all samples of one [`Watched`].
#[derive(Debug, Default)]
struct Tally {
    touches: AtomicU64,
    /// Pages times the faults for which they were watched.
    watched: AtomicU64,
}

impl Tally {
    fn add(&self, touches: u64, watched: u64) {
        self.touches.fetch_add(touches, Relaxed);
        self.watched.fetch_add(watched, Relaxed);
    }
    fn sums(&self) -> (u64, u64) {
        (self.touches.load(Relaxed), self.watched.load(Relaxed))
    }
    /// Whether there are this many touches, or this much watching.
    fn suffices(&self, touches: u64, watched: u64) -> bool {
        let sums = self.sums();
        sums.0 >= touches || sums.1 >= watched
    }
    fn halve(&self) {
        for sum in [&self.touches, &self.watched] {
            let _ = sum.fetch_update(Relaxed, Relaxed, |sum| Some(sum / 2));
        }
    }
}

/// The measurement and its verdict. All-zero: nothing is known, and bringing a piece does not pay.
/// The handler asks and reports the pages that came back; the evictor reports the pages that left.
/// Advisory: a race may cost a sample.
#[derive(Debug)]
pub struct Around {
    samples: [AtomicU64; SAMPLES],
    /// Faults that brought pages back from a device.
    faults: AtomicU32,
    neighbours: Tally,
    displaced: Tally,
    is_worth_it: AtomicU32,
    /// Faults out of order until one brings its page alone, where bringing pays.
    until_alone: AtomicU32,
    /// Pages that the limit holds.
    limit_pages: AtomicU64,
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
            limit_pages: AtomicU64::default(),
        }
    }
}

impl Around {
    /// Sets how many pages the limit holds.
    ///
    /// Where other members of the group have a part of it, the pages that come along stay for less
    /// time, and are wanted while they stay less often than this says. The comparison with
    /// displaced pages does not depend on it.
    pub fn set_room(&self, pages: u64) {
        self.limit_pages.store(pages, Relaxed);
    }

    /// Whether the `neighbours` come along with a fault out of order in piece number `piece`
    /// (address by 64 KiB). They are the other pages of the piece that are away. Called by the
    /// handler.
    pub fn brings(&self, piece: usize, neighbours: Pages) -> bool {
        if self.is_worth_it.load(Relaxed) != 0 {
            let left = self.until_alone.load(Relaxed);
            let is_watched = left == 0 && self.watch(piece, Neighbours, neighbours) == Watch::Begun;
            self.until_alone.store(if is_watched { ALONE } else { left.saturating_sub(1) }, Relaxed);
            return !is_watched;
        }
        self.watch(piece, Neighbours, neighbours);
        false
    }

    /// Records that a fault on the page `touched` of a piece has brought back its `pages` from a
    /// device. Called by the handler.
    pub fn came_back(&self, piece: usize, touched: usize, pages: Pages) {
        let now = self.faults.fetch_add(1, Relaxed).wrapping_add(1);
        self.end_if_over(&self.samples[now as usize % SAMPLES]);
        let cell = self.cell(piece);
        let sample = Sample(cell.load(Relaxed));
        if sample.piece() != piece || sample.pages() & pages == 0 {
            return;
        }
        let age = sample.age(now as u16);
        if age < BURST {
            exchange(cell, sample, sample.without(pages));
        } else if exchange(cell, sample, Sample::NONE) == Exchange::Done {
            self.note(sample, u64::from(sample.pages() >> touched & 1), age.into());
        }
    }

    /// Records that these pages of a piece have just been written back. Called by the evictor.
    pub fn displaced(&self, piece: usize, pages: Pages) {
        self.watch(piece, Displaced, pages);
    }

    fn cell(&self, piece: usize) -> &AtomicU64 {
        // Fibonacci hashing: neighbouring pieces fall far apart.
        let hash = (piece as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.samples[(hash >> (64 - SAMPLES.ilog2())) as usize]
    }

    /// Watches these pages if there are any and their cell is free.
    fn watch(&self, piece: usize, watched: Watched, pages: Pages) -> Watch {
        let cell = self.cell(piece);
        self.end_if_over(cell);
        let sample = Sample::new(piece, watched, pages, self.faults.load(Relaxed) as u16);
        if pages != 0 && exchange(cell, Sample::NONE, sample) == Exchange::Done {
            Watch::Begun
        } else {
            Watch::NotBegun
        }
    }

    fn end_if_over(&self, cell: &AtomicU64) {
        let (sample, horizon) = (Sample(cell.load(Relaxed)), self.horizon());
        let is_over = u64::from(sample.age(self.faults.load(Relaxed) as u16)) >= horizon;
        if sample != Sample::NONE && is_over && exchange(cell, sample, Sample::NONE) == Exchange::Done {
            self.note(sample, 0, horizon);
        }
    }

    /// Adds a sample that has ended after this many faults.
    fn note(&self, sample: Sample, touches: u64, faults: u64) {
        let watched = faults * u64::from(sample.pages().count_ones());
        match sample.watched() {
            Neighbours => {
                self.neighbours.add(touches, watched);
                self.judge();
            }
            Displaced => self.displaced.add(touches, watched),
        }
    }

    fn horizon(&self) -> u64 {
        (self.limit_pages.load(Relaxed) / HORIZON_PART).clamp(HORIZON_MIN, HORIZON_MAX)
    }

    fn judge(&self) {
        // One touch is expected, by LEAST_SHARE, of a page that is watched for as long as this.
        let expects_one = LEAST_SHARE * self.limit_pages.load(Relaxed).max(HORIZON_MIN) / STAY_PART;
        let enough = |tally: &Tally, times| {
            tally.suffices(times * VERDICT_TOUCHES, times * VERDICT_TOUCHES * expects_one)
        };
        if !enough(&self.neighbours, 1) {
            return;
        }
        let ((touches, watched), (displaced, away)) = (self.neighbours.sums(), self.displaced.sums());
        let was = self.is_worth_it.load(Relaxed) != 0;
        let least = if was { LEAST_RATIO_TO_GO_ON } else { LEAST_RATIO };
        let is_sooner = 4 * u128::from(touches) * u128::from(away)
            >= u128::from(least) * u128::from(displaced) * u128::from(watched);
        let is_soon = touches * expects_one >= watched;
        let is = is_sooner && is_soon;
        self.is_worth_it.store(u32::from(is), Relaxed);
        if is && !was {
            self.until_alone.store(ALONE, Relaxed);
        }
        for tally in [&self.neighbours, &self.displaced] {
            if enough(tally, 2) {
                tally.halve();
            }
        }
    }
}

#[cfg(test)]
mod tests;

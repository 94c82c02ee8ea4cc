//! Is it worth bringing a whole 64 KiB piece back for one page of it that is touched out of order?
//!
//! It is where what lies around is wanted sooner than what leaves for it: where the working set moves, or where single pages of old
//! data stand between it and the pages that it lacks. It is not where single pages are touched at random, nor where everything is
//! equally hot and does not fit: there both are wanted equally soon. So both are counted, and in the same way, for both are away until
//! somebody touches them: *neighbours*, which did not come along with a page of their piece, and *displaced* pages, which have just
//! been written back. How soon are the one and the other touched?
//!
//! GNU sort in half of its need, at the beginning of its last merge: neighbours 1.5 to 8 times as soon as displaced pages. The same with
//! its store counted to the limit, where it thrashes, and a Python array touched at random: as soon, within a third.
//!
//! *How soon* is touches for each page and fault for which one was watched. A piece is watched until the first touch, after which it
//! is like any other; so watching costs one fault for each piece, where all of it is wanted. As long as it is not worth it, each fault out of order is
//! such an experiment, if there is a place for one more; where it is, one of several.

use crate::around::Kind::{Displaced, Neighbours};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Pages of a piece, one bit each.
pub type Pages = u16;

/// Pieces that are watched at once, at most.
const SAMPLES: usize = 1024;
/// Faults for which a piece is watched: a 64th of the pages that fit, between these.
const HORIZON_PART: u64 = 64;
const HORIZON_MIN: u64 = 512;
const HORIZON_MAX: u64 = 1 << 14;
/// A touch within so many faults is the other half of what was touched just now: it says nothing about the rest, which goes on being watched.
const BURST: u16 = 4;
/// A page that came along stays for about as many faults as pages fit, by this: then as many as fit have come since.
const STAY_PART: u64 = 16;
/// One page of so many must be wanted while it would stay; below that it costs more to bring them than it spares faults.
const LEAST_SHARE: u64 = 4;
/// For a verdict so many neighbours must have been touched, or as many must have been expected at [`LEAST_SHARE`]. At twice as many, all that
/// was counted counts half.
const VERDICT_TOUCHES: u64 = 64;
/// So many times as soon as displaced pages must neighbours be touched, in quarters: to begin, and to go on.
const LEAST_RATIO: u64 = 8;
const LEAST_RATIO_TO_GO_ON: u64 = 6;
/// Where it is worth it, one fault of so many brings its page alone.
const ALONE: u32 = 16;

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
    const NONE: Sample = Sample(0);

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
    /// What is left of it without these pages.
    fn without(self, pages: Pages) -> Self {
        match self.pages() & !pages {
            0 => Sample::NONE,
            _ => Sample(self.0 & !(u64::from(pages) << 16)),
        }
    }
    fn age(self, now: u16) -> u16 {
        now.wrapping_sub(self.0 as u16)
    }
}

/// False: somebody else was faster.
fn replace(slot: &AtomicU64, before: Sample, after: Sample) -> bool {
    slot.compare_exchange(before.0, after.0, Relaxed, Relaxed).is_ok()
}

/// What became of a kind.
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
    /// Do so many touches, or so much watching, suffice?
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
    /// Faults out of order until one brings its page alone, where it is worth it.
    until_alone: AtomicU32,
    /// Pages that the limit holds.
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
            room: AtomicU64::default(),
        }
    }
}

impl Around {
    /// The limit holds so many pages. (Where others of the group have their part of it, what comes along stays for less, and is wanted while it stays
    /// less often than this says. The comparison with what is displaced does not depend on it.)
    pub fn set_room(&self, pages: u64) {
        self.room.store(pages, Relaxed);
    }

    /// A fault out of order in piece number `piece` (address by 64 KiB), of which `neighbours` are away too: do they come along? Handler.
    pub fn brings(&self, piece: usize, neighbours: Pages) -> bool {
        if self.is_worth_it.load(Relaxed) != 0 {
            let left = self.until_alone.load(Relaxed);
            let is_watched = left == 0 && self.watch(piece, Neighbours, neighbours);
            self.until_alone.store(if is_watched { ALONE } else { left.saturating_sub(1) }, Relaxed);
            return !is_watched;
        }
        self.watch(piece, Neighbours, neighbours);
        false
    }

    /// A fault on the page `touched` of a piece has brought back its `pages`, from a device. Handler.
    pub fn came_back(&self, piece: usize, touched: usize, pages: Pages) {
        let now = self.faults.fetch_add(1, Relaxed).wrapping_add(1);
        self.end_if_over(&self.samples[now as usize % SAMPLES]);
        let slot = self.slot(piece);
        let sample = Sample(slot.load(Relaxed));
        if sample.piece() != piece || sample.pages() & pages == 0 {
            return;
        }
        let age = sample.age(now as u16);
        if age < BURST {
            replace(slot, sample, sample.without(pages));
        } else if replace(slot, sample, Sample::NONE) {
            self.note(sample, u64::from(sample.pages() >> touched & 1), age.into());
        }
    }

    /// These pages of a piece have just been written back. Evictor.
    pub fn displaced(&self, piece: usize, pages: Pages) {
        self.watch(piece, Displaced, pages);
    }

    fn slot(&self, piece: usize) -> &AtomicU64 {
        // Fibonacci hashing: neighbouring pieces fall far apart.
        let hash = (piece as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.samples[(hash >> (64 - SAMPLES.ilog2())) as usize]
    }

    /// Watches these pages, if there are any, and a place. False: not.
    fn watch(&self, piece: usize, kind: Kind, pages: Pages) -> bool {
        let slot = self.slot(piece);
        self.end_if_over(slot);
        let sample = Sample::new(piece, kind, pages, self.faults.load(Relaxed) as u16);
        pages != 0 && replace(slot, Sample::NONE, sample)
    }

    fn end_if_over(&self, slot: &AtomicU64) {
        let (sample, horizon) = (Sample(slot.load(Relaxed)), self.horizon());
        let is_over = u64::from(sample.age(self.faults.load(Relaxed) as u16)) >= horizon;
        if sample != Sample::NONE && is_over && replace(slot, sample, Sample::NONE) {
            self.note(sample, 0, horizon);
        }
    }

    /// A sample has ended after so many faults.
    fn note(&self, sample: Sample, touches: u64, faults: u64) {
        let watched = faults * u64::from(sample.pages().count_ones());
        match sample.kind() {
            Neighbours => {
                self.neighbours.add(touches, watched);
                self.judge();
            }
            Displaced => self.displaced.add(touches, watched),
        }
    }

    fn horizon(&self) -> u64 {
        (self.room.load(Relaxed) / HORIZON_PART).clamp(HORIZON_MIN, HORIZON_MAX)
    }

    fn judge(&self) {
        // Of a page that is watched for as long as this, LEAST_SHARE says that one touch is expected.
        let expects_one = LEAST_SHARE * self.room.load(Relaxed).max(HORIZON_MIN) / STAY_PART;
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

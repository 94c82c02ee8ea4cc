//! Is it worth bringing a whole 64 KiB piece back for one page of it that is touched out of order?
//!
//! It is where the working set moves: what lies around is wanted soon, and what makes room for it is not. It is not where single pages
//! are touched at random, nor where everything is equally hot and does not fit: there the pages around push out others that are wanted
//! as soon. So it is measured, as the kernel counts readahead hits: of the pages that were brought *along*, how many are touched
//! in their second chance (in staging, before their write-back)? GNU sort in half of its need: 15 to 30 of 100; the same with its
//! store counted to the limit, where it thrashes: 1 to 5; pages of a Python array, or of 512 MiB, at random: 1 to 2.
//!
//! As long as it is not worth it, one fault of many brings its piece along all the same, to find out; the more rarely, the longer it has not
//! been. Such pages are looked at one by one: elsewhere one touch brings back all of a folio in staging, and nobody knows which of
//! them was wanted.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Pages brought along whose outcome is known, after which the verdict is made anew. What is older then counts half.
const VERDICT_AFTER: u32 = 128;
/// One in so many must have been touched.
const LEAST_SHARE: u32 = 10;
/// One of so many faults out of order tries, at first and in the end.
const TRIES_FIRST: u32 = 128;
const TRIES_LAST: u32 = 1024;
/// While it is worth it, one of so many folios is measured.
const MEASURED: u32 = 8;

/// The measure and its verdict. All-zero: nothing is known, and it is not worth it. Outcomes are noted by one thread (the evictor), and
/// faults asked about by one (the handler).
#[derive(Debug, Default)]
pub struct Around {
    touched: AtomicU32,
    left: AtomicU32,
    /// Outcomes since the last verdict.
    since: AtomicU32,
    is_worth_it: AtomicU32,
    /// Faults out of order until one tries, and from one to the next (0: [`TRIES_FIRST`]).
    until_try: AtomicU32,
    between_tries: AtomicU32,
}

impl Around {
    /// A fault out of order: does it bring its piece along? Handler.
    pub fn brings(&self) -> bool {
        if self.is_worth_it.load(Relaxed) != 0 {
            return true;
        }
        let left = self.until_try.load(Relaxed);
        let next = if left == 0 { self.between_tries() } else { left };
        self.until_try.store(next - 1, Relaxed);
        left == 0
    }

    /// Is folio number `number` with pages that were brought along one of those that are measured? Evictor.
    pub fn measures(&self, number: u32) -> bool {
        self.is_worth_it.load(Relaxed) == 0 || number.is_multiple_of(MEASURED)
    }

    /// Of pages that were brought along and measured: so many were touched in their second chance, so many left. Evictor.
    pub fn note(&self, touched: u32, left: u32) {
        let sum = |place: &AtomicU32, more| {
            let sum = place.load(Relaxed) + more;
            place.store(sum, Relaxed);
            sum
        };
        let (all_touched, all_left) = (sum(&self.touched, touched), sum(&self.left, left));
        if sum(&self.since, touched + left) < VERDICT_AFTER {
            return;
        }
        let is_worth_it = all_touched * LEAST_SHARE >= all_touched + all_left;
        self.is_worth_it.store(u32::from(is_worth_it), Relaxed);
        let between = if is_worth_it { TRIES_FIRST } else { (self.between_tries() * 2).min(TRIES_LAST) };
        self.between_tries.store(between, Relaxed);
        self.since.store(0, Relaxed);
        self.touched.store(all_touched / 2, Relaxed);
        self.left.store(all_left / 2, Relaxed);
    }

    fn between_tries(&self) -> u32 {
        self.between_tries.load(Relaxed).max(TRIES_FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many faults out of order, how many bring their piece?
    fn brought(around: &Around, faults: u32) -> u32 {
        (0..faults).filter(|_| around.brings()).count() as u32
    }

    #[test]
    fn before_anything_is_known_one_of_many_tries() {
        let around = Around::default();
        assert!(around.brings());
        assert_eq!(brought(&around, 10 * TRIES_FIRST), 10);
        assert!(around.measures(1));
    }

    #[test]
    fn what_is_touched_often_is_brought_along() {
        let around = Around::default();
        around.note(12, 115);
        assert!(brought(&around, 1000) < 10, "too early");
        around.note(1, 0);
        assert_eq!(brought(&around, 1000), 1000);
        assert_eq!((0..80).filter(|&folio| around.measures(folio)).count(), 10);
        // What was found before counts half.
        around.note(7, 121);
        assert!(brought(&around, 1000) < 10);
    }

    #[test]
    fn what_is_not_is_tried_more_and_more_rarely_but_never_given_up() {
        let around = Around::default();
        around.brings();
        for between in [256, 512, 1024, 1024] {
            around.note(3, VERDICT_AFTER);
            while !around.brings() {}
            assert_eq!(brought(&around, 8 * between), 8);
        }
        around.note(VERDICT_AFTER, 0);
        assert_eq!(brought(&around, 10), 10);
        around.note(0, 8 * VERDICT_AFTER);
        while !around.brings() {}
        assert_eq!(brought(&around, 512), 2, "after it was worth it, it begins anew");
    }
}

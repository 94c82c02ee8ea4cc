//! How fast what is hot grows cold again.
//!
//! A page that came back from staging, or from a device out of order, is hot; the clock passes it, and cools it for the next
//! round. Were every hot page cooled at every round, a stream of pages that are used once would wear out all that is used again and
//! again: nobody tells us that a page is touched as long as it stays. So hot pages are cooled at the pace at which cold ones are
//! found and taken, and all of them only after a round that found next to none.

/// Pages that are taken for one that is cooled.
const TAKEN_FOR_ONE: u32 = 4;
/// A round that takes less than this part of what it passes finds next to nothing.
const LEAST_SHARE: u64 = 32;
/// Most pages that may be cooled in a row.
const CREDIT_MAX: u32 = 4096 * TAKEN_FOR_ONE;

/// The clock's pace of cooling; by default as before the first round. Lost without harm at a fork.
#[derive(Debug, Default)]
pub struct Aging {
    /// What the pages taken so far pay for.
    credit: u32,
    passed: u64,
    taken: u64,
    /// What this round does with the hot pages that it passes.
    cooling: Cooling,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cooling {
    /// The last round found next to nothing: all are cooled.
    #[default]
    All,
    /// As many as was paid for.
    Paid,
}

impl Aging {
    /// The clock meets a hot page: is it cooled now?
    pub fn cools(&mut self) -> bool {
        if self.cooling == Cooling::All {
            return true;
        }
        let paid = self.credit.checked_sub(TAKEN_FOR_ONE);
        self.credit = paid.unwrap_or(self.credit);
        paid.is_some()
    }

    /// The clock passed so many present pages, of which these were taken.
    pub fn note(&mut self, present: u64, taken: u64) {
        self.passed += present;
        self.taken += taken;
        self.credit = (self.credit + taken as u32).min(CREDIT_MAX);
    }

    /// The clock has come round.
    pub fn begin_round(&mut self) {
        self.cooling = if self.taken < self.passed / LEAST_SHARE || self.taken == 0 {
            Cooling::All
        } else {
            Cooling::Paid
        };
        (self.passed, self.taken) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes hot pages; how many of them are cooled?
    fn cooled_of(aging: &mut Aging, hot: u32) -> u32 {
        (0..hot).filter(|_| aging.cools()).count() as u32
    }

    /// Passes pieces of 16 present pages, of each of which so many are taken.
    fn pass(aging: &mut Aging, pieces: u32, taken: u64) {
        (0..pieces).for_each(|_| aging.note(16, taken));
    }

    #[test]
    fn before_anything_is_known_all_are_cooled() {
        assert_eq!(cooled_of(&mut Aging::default(), 1000), 1000);
    }

    #[test]
    fn where_cold_pages_are_found_hot_ones_are_cooled_at_their_pace() {
        let mut aging = Aging::default();
        pass(&mut aging, 100, 8);
        aging.begin_round();
        assert_eq!(cooled_of(&mut aging, 1000), 800 / TAKEN_FOR_ONE);
        assert_eq!(cooled_of(&mut aging, 1000), 0, "each is paid for once");
        pass(&mut aging, 100, 1);
        assert_eq!(cooled_of(&mut aging, 1000), 100 / TAKEN_FOR_ONE);
    }

    #[test]
    fn after_a_round_that_finds_next_to_nothing_all_are_cooled_once() {
        let mut aging = Aging::default();
        for taken in [0, 1] {
            pass(&mut aging, 100, 8);
            aging.begin_round();
            cooled_of(&mut aging, 1000);
            // 1600 pages passed: a 32nd of them are 50.
            pass(&mut aging, 51, 0);
            pass(&mut aging, 49, taken);
            aging.begin_round();
            assert_eq!(cooled_of(&mut aging, 1000), 1000, "{taken}");
        }
        pass(&mut aging, 100, 1);
        aging.begin_round();
        assert!(cooled_of(&mut aging, 1000) < 1000);
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let mut aging = Aging::default();
        (0..10).for_each(|_| pass(&mut aging, 4096, 16));
        aging.begin_round();
        assert_eq!(cooled_of(&mut aging, 100_000), CREDIT_MAX / TAKEN_FOR_ONE);
    }
}

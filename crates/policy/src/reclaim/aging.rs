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
mod tests;

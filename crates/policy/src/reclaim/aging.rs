//! The pace at which hot pages grow cold again.
//!
//! A page that came back from staging, or from a device out of order, is hot; the clock passes it,
//! and cools it for the next round. If every hot page were cooled at every round, a stream of pages
//! that are used once would wear out all pages that are used again and again, because user space
//! cannot see that a resident page is touched. So hot pages are cooled at the pace at which cold
//! ones are found and taken, and all of them only after a round that found next to none.

/// Pages that are taken for each page that is cooled.
const TAKEN_FOR_ONE: u32 = 4;
/// A round that takes less than this part of the pages that it passes finds next to nothing.
const LEAST_SHARE: u64 = 32;
/// The largest credit: this bounds how many pages may be cooled in a row.
const CREDIT_MAX: u32 = 4096 * TAKEN_FOR_ONE;

/// The clock's pace of cooling. Default: as before the first round. A fork may lose it without
/// harm.
#[derive(Debug, Default)]
pub struct Aging {
    /// The credit that the pages taken so far have paid for.
    credit: u32,
    passed: u64,
    taken: u64,
    /// The treatment of the hot pages that this round passes.
    cooling: Cooling,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cooling {
    /// The last round found next to nothing: all hot pages are cooled.
    #[default]
    All,
    /// As many pages are cooled as the credit pays for.
    Paid,
}

impl Aging {
    /// Whether the hot page that the clock meets is cooled now.
    pub fn cools(&mut self) -> bool {
        if self.cooling == Cooling::All {
            return true;
        }
        let paid = self.credit.checked_sub(TAKEN_FOR_ONE);
        self.credit = paid.unwrap_or(self.credit);
        paid.is_some()
    }

    /// Records that the clock passed `present` present pages, of which `taken` were taken.
    pub fn note(&mut self, present: u64, taken: u64) {
        self.passed += present;
        self.taken += taken;
        self.credit = (self.credit + taken as u32).min(CREDIT_MAX);
    }

    /// Begins the next round: the clock has come round.
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

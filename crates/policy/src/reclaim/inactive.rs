//! The length of the inactive list: how many pages wait uncompressed in staging until they are
//! written back.
//!
//! These pages are resident, and the list costs the program pages that its clock would otherwise
//! leave alone: a longer list lets more pages prove that they are in use, for a fault and a copy
//! each, where a shorter one leaves more of them alone. So it grows where it was too short: where
//! pages are written back that come back before as many have left as the list could be longer by
//! ([`workingset`](super::workingset)). When that has not happened for a while, it shrinks again.

/// Lengths of the list, in berths: `least <= most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The length with which the list begins. It does not become shorter.
    pub least: u64,
    /// The largest length.
    pub most: u64,
}

/// The list grows when one refault could have been spared for this many pages written back, or
/// fewer.
const GROWS_AT: u64 = 8;
/// The list shrinks after turns in which not one refault could have been spared for this many pages
/// written back, or more.
const SHRINKS_AT: u64 = 64;
/// Quiet turns in a row after which the list shrinks.
const QUIET_TURNS: u32 = 4;
/// The list changes by this part of its largest length.
const STEP_PART: u64 = 16;

/// The length of the inactive list. Default: nothing is known. A fork may lose it without harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InactiveList {
    /// Berths by which the list is longer than it must be.
    grown: u64,
    /// Sums since the last judgement.
    berths: u64,
    pages: u64,
    spared: u64,
    /// Turns in a row in which hardly a refault would have been spared.
    quiet: u32,
    /// Pages in a berth, as last seen, in sixteenths; 0: not known.
    pages_per_berth: u64,
}

impl InactiveList {
    /// Returns the length now, in berths, within these bounds.
    pub fn length(&self, bounds: Bounds) -> u64 {
        (bounds.least + self.grown).min(bounds.most)
    }

    /// Returns by how many pages the list could still grow, if its berths go on being as full as
    /// they were.
    pub fn room(&self, bounds: Bounds) -> u64 {
        (bounds.most.saturating_sub(self.length(bounds))) * self.pages_per_berth / 16
    }

    /// Records that `berths` berths, with `pages` pages that were still there, were written back,
    /// and that a list of its largest length would have spared `spared` refaults.
    ///
    /// The list is judged once for each of its turns: when as many berths have left as it is long.
    pub fn note(&mut self, bounds: Bounds, berths: u64, pages: u64, spared: u64) {
        self.berths += berths;
        self.pages += pages;
        self.spared += spared;
        let length = self.length(bounds);
        if self.berths < length.max(1) {
            return;
        }
        let step = (bounds.most / STEP_PART).max(1);
        // If the bounds have changed since, the length that has grown beyond them begins at them.
        self.grown = length - bounds.least;
        if self.spared > 0 && self.spared * GROWS_AT >= self.pages {
            self.quiet = 0;
            self.grown = (self.grown + step).min(bounds.most - bounds.least);
        } else if self.spared * SHRINKS_AT <= self.pages {
            self.quiet += 1;
            if self.quiet >= QUIET_TURNS {
                self.quiet = 0;
                self.grown = self.grown.saturating_sub(step);
            }
        } else {
            self.quiet = 0;
        }
        self.pages_per_berth = self.pages * 16 / self.berths;
        (self.berths, self.pages, self.spared) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests;

//! How long the inactive list should be: how much waits uncompressed in staging until it is written back.
//!
//! What waits there is resident, and costs the program what its clock would otherwise leave alone: a longer list lets more pages prove
//! that they are in use, for a fault and a copy each, where a shorter one leaves more of them alone. So it grows where it was too short:
//! where pages are written back that come back before as many have left as the list could be longer by
//! ([`workingset`](super::workingset)). When that has not happened for a while, it shrinks again.

/// Lengths of the list, in places of a folio each: `least <= most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// It begins with this, and does not become shorter.
    pub least: u64,
    /// It does not become longer.
    pub most: u64,
}

/// It grows when a refault was spared for so many pages written back, or fewer.
const GROWS_AT: u64 = 8;
/// It shrinks after turns in which for so many pages written back, or more, not one refault was spared.
const SHRINKS_AT: u64 = 64;
/// So many turns in a row.
const QUIET_TURNS: u32 = 4;
/// It changes by this part of its largest length.
const STEP_PART: u64 = 16;

/// The length of the inactive list. Default: nothing is known. Lost without harm at a fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InactiveList {
    /// What it is longer by than it must be, in places.
    grown: u64,
    /// Since the last judgement.
    folios: u64,
    pages: u64,
    spared: u64,
    /// Turns in a row in which hardly a refault would have been spared.
    quiet: u32,
    /// Pages in a folio, as last seen, in sixteenths; 0: not known.
    pages_per_folio: u64,
}

impl InactiveList {
    /// Its length now, in places, within these bounds.
    pub fn length(&self, bounds: Bounds) -> u64 {
        (bounds.least + self.grown).min(bounds.most)
    }

    /// By how many pages it could still grow, if its places go on being as full as they were.
    pub fn room(&self, bounds: Bounds) -> u64 {
        (bounds.most.saturating_sub(self.length(bounds))) * self.pages_per_folio / 16
    }

    /// So many folios, with so many pages that were still there, were written back; and so many refaults would have been spared by a list
    /// of its largest length. It is judged once for each turn of the list: when as many folios have left as it is long.
    pub fn note(&mut self, bounds: Bounds, folios: u64, pages: u64, spared: u64) {
        self.folios += folios;
        self.pages += pages;
        self.spared += spared;
        let length = self.length(bounds);
        if self.folios < length.max(1) {
            return;
        }
        let step = (bounds.most / STEP_PART).max(1);
        // What has grown beyond bounds that have changed since begins at them.
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
        self.pages_per_folio = self.pages * 16 / self.folios;
        (self.folios, self.pages, self.spared) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests;

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
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { least: 128, most: 192 };

    /// A turn of the list: of 16 pages in each folio, so many in a thousand come back at once.
    fn turn(list: &mut InactiveList, bounds: Bounds, per_mille: u64) -> u64 {
        let folios = list.length(bounds);
        list.note(bounds, folios, folios * 16, folios * 16 * per_mille / 1000);
        list.length(bounds)
    }

    #[test]
    fn it_begins_as_short_as_it_may_be_and_stays_so_as_long_as_nothing_is_known() {
        let mut list = InactiveList::default();
        assert_eq!((list.length(BOUNDS), list.room(BOUNDS)), (128, 0));
        list.note(BOUNDS, 127, 127 * 16, 127 * 16);
        assert_eq!(list.length(BOUNDS), 128, "it has not turned over yet");
        list.note(BOUNDS, 1, 16, 0);
        assert_eq!(list.length(BOUNDS), 140);
    }

    #[test]
    fn refaults_that_it_could_have_spared_make_it_longer_up_to_its_bound() {
        let mut list = InactiveList::default();
        let lengths: Vec<u64> = (0..7).map(|_| turn(&mut list, BOUNDS, 200)).collect();
        assert_eq!(lengths, [140, 152, 164, 176, 188, 192, 192]);
        assert_eq!(list.room(BOUNDS), 0);
    }

    #[test]
    fn few_of_them_leave_it_as_it_is_and_none_make_it_shorter_after_a_while() {
        let mut list = InactiveList::default();
        (0..3).for_each(|_| _ = turn(&mut list, BOUNDS, 500));
        assert!((0..20).all(|_| turn(&mut list, BOUNDS, 50) == 164));
        let lengths: Vec<u64> = (0..9).map(|_| turn(&mut list, BOUNDS, 0)).collect();
        assert_eq!(lengths, [164, 164, 164, 152, 152, 152, 152, 140, 140]);
        (0..100).for_each(|_| _ = turn(&mut list, BOUNDS, 0));
        assert_eq!((list.length(BOUNDS), list.room(BOUNDS)), (128, 64 * 16));
    }

    #[test]
    fn room_counts_pages_as_folios_have_them() {
        let mut list = InactiveList::default();
        list.note(BOUNDS, 128, 128 * 3, 0);
        assert_eq!(list.room(BOUNDS), 64 * 3);
    }

    #[test]
    fn whatever_happens_it_keeps_its_bounds() {
        let mut list = InactiveList::default();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..100_000 {
            // Members come and go: their shares change at any moment.
            let live = 1 + next(40);
            let bounds = Bounds { least: 128 / live, most: 192 / live };
            let before = list.length(bounds);
            let (folios, pages, spared) = (next(60), next(900), next(900));
            list.note(bounds, folios, pages, spared);
            let after = list.length(bounds);
            assert!((bounds.least..=bounds.most).contains(&after));
            assert!(after.abs_diff(before) <= (bounds.most / STEP_PART).max(1));
            assert!(list.room(bounds) <= (bounds.most - after) * 900);
        }
    }
}

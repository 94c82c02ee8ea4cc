//! Parts of series 1 that are combined on the command line, as in `scan-one+free-first`.
//!
//! All combinations are one type, because a type for each would be compiled with all that runs on
//! it. Which one is meant is a thread's own variable, set while a task of it runs.

use folioswap_slots::{DeviceView, FragmentScan, FullReclaim, ListOrder, Policy, Search, Searches, SpinOnly};
use std::cell::Cell;
use std::fmt;

/// The list that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// NONFULL, but FREE on devices that discard per cluster.
    ByDiscard,
    Nonfull,
    Free,
}

/// A choice of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combination {
    scan: FragmentScan,
    first: First,
    reclaim: FullReclaim,
}

/// Series 1 as it was merged.
const MERGED: Combination = Combination {
    scan: FragmentScan::One,
    first: First::ByDiscard,
    reclaim: FullReclaim::AfterFreeAndNonfull,
};

type Change = fn(&mut Combination);

/// The parts: what each changes, and which kind it is of.
const PARTS: [(&str, u8, Change); 7] = [
    ("scan-one", 0, |parts| parts.scan = FragmentScan::One),
    ("scan-all", 0, |parts| parts.scan = FragmentScan::All),
    ("nonfull-first", 1, |parts| parts.first = First::ByDiscard),
    ("nonfull-always-first", 1, |parts| parts.first = First::Nonfull),
    ("free-first", 1, |parts| parts.first = First::Free),
    ("reclaim-late", 2, |parts| parts.reclaim = FullReclaim::AfterFreeAndNonfull),
    ("reclaim-early", 2, |parts| parts.reclaim = FullReclaim::AfterFree),
];

/// The names of all parts.
pub(super) fn parts() -> String {
    PARTS.map(|(name, ..)| name).join(", ")
}

thread_local! {
    static PRESENT: Cell<Combination> = const { Cell::new(MERGED) };
}

impl Combination {
    /// Parts joined by `+`, at most one of a kind; kinds that are not named are as merged.
    pub(super) fn parse(text: &str) -> Option<Combination> {
        let mut combination = MERGED;
        let mut seen = [false; 3];
        for word in text.split('+') {
            let (_, kind, change) = PARTS.iter().find(|(name, ..)| *name == word)?;
            if std::mem::replace(&mut seen[usize::from(*kind)], true) {
                return None;
            }
            change(&mut combination);
        }
        Some(combination)
    }

    /// Runs `task` while this thread's combination is this one.
    pub(super) fn during<T>(self, task: impl FnOnce() -> T) -> T {
        /// Puts the former one back, also when the task panics.
        struct Former(Combination);
        impl Drop for Former {
            fn drop(&mut self) {
                PRESENT.set(self.0);
            }
        }
        let _former = Former(PRESENT.replace(self));
        task()
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scan = match self.scan {
            FragmentScan::One => "scan-one",
            FragmentScan::All => "scan-all",
        };
        let first = match self.first {
            First::ByDiscard => "nonfull-first",
            First::Nonfull => "nonfull-always-first",
            First::Free => "free-first",
        };
        let reclaim = match self.reclaim {
            FullReclaim::AfterFreeAndNonfull => "",
            FullReclaim::AfterFree => "+reclaim-early",
        };
        formatter.pad(&format!("{scan}+{first}{reclaim}"))
    }
}

/// The combination of the thread that made it, to be taken over by the threads that it starts.
#[derive(Debug, Clone, Copy)]
pub struct Inherited(Combination);

impl Inherited {
    /// That of the calling thread.
    pub fn of_this_thread() -> Inherited {
        Inherited(PRESENT.get())
    }

    /// Makes it that of the calling thread.
    pub fn take_over(self) {
        PRESENT.set(self.0);
    }
}

/// The present combination, the rest as in Linux 6.19.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ByParts;

impl Policy for ByParts {
    type Relax = SpinOnly;
    const LIST_ORDER: ListOrder = ListOrder::Own;

    fn list_order(view: &DeviceView) -> Searches {
        let Combination { scan, first, reclaim } = PRESENT.get();
        let free_first = match first {
            First::ByDiscard => view.discards,
            First::Nonfull => false,
            First::Free => true,
        };
        let fragments = match scan {
            FragmentScan::One => Search::OneFragment,
            FragmentScan::All => Search::AllFragments,
        };
        let [one, two] =
            if free_first { [Search::Free, Search::Nonfull] } else { [Search::Nonfull, Search::Free] };
        let after = |list: Search| {
            let early = reclaim == FullReclaim::AfterFree && list == Search::Free;
            early.then_some(Search::ReclaimFull)
        };
        let late = (reclaim == FullReclaim::AfterFreeAndNonfull).then_some(Search::ReclaimFull);
        [Some(one), after(one), Some(two), after(two).or(late), Some(fragments), None]
    }
}

#[cfg(test)]
mod tests;

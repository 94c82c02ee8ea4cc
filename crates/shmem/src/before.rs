//! Swap-in before the series and after its patches. Patches 3, 4, 6 and 8 tidy up: 3 and 4 behave
//! as 2, 6 as 5, and 8 (which counts major faults otherwise) shares a variant with the whole
//! series.

use crate::variant::{
    EntrySplit, Fallback, Insertion, LargerCached, Lookup, MajorFault, OrderWalk, UnderLock, Variant,
};

/// Before the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before;

impl Variant for Before {
    const LARGER_CACHED: LargerCached = LargerCached::Refused;
    const INSERTION: Insertion = Insertion::FirstEntry;
    const ENTRY_SPLIT: EntrySplit = EntrySplit::OnMiss;
    const ORDER_WALK: OrderWalk = OrderWalk::OfItsOwn;
    const FALLBACK: Fallback = Fallback::CachedReadahead;
    const LOOKUP: Lookup = Lookup::FirstEntry;
    const MAJOR_FAULT: MajorFault = MajorFault::EachMiss;
    const UNDER_LOCK: UnderLock = UnderLock::FirstEntryAndOrder;
}

/// After patch 1: no hang, and insertion checks the whole range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After1;

impl Variant for After1 {
    const ENTRY_SPLIT: EntrySplit = EntrySplit::OnMiss;
    const ORDER_WALK: OrderWalk = OrderWalk::OfItsOwn;
    const FALLBACK: Fallback = Fallback::CachedReadahead;
    const LOOKUP: Lookup = Lookup::FirstEntry;
    const MAJOR_FAULT: MajorFault = MajorFault::EachMiss;
}

/// After patch 2 (and 3, 4): the order comes with the confirmation, and an entry is split only
/// where a smaller folio arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After2;

impl Variant for After2 {
    const FALLBACK: Fallback = Fallback::CachedReadahead;
    const LOOKUP: Lookup = Lookup::FirstEntry;
    const MAJOR_FAULT: MajorFault = MajorFault::EachMiss;
}

/// After patch 5 (and 6): a failed large swap-in goes on directly with order 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After5;

impl Variant for After5 {
    const LOOKUP: Lookup = Lookup::FirstEntry;
    const MAJOR_FAULT: MajorFault = MajorFault::EachMiss;
}

/// After patch 7: the entry of the index is looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After7;

impl Variant for After7 {
    const MAJOR_FAULT: MajorFault = MajorFault::EachMiss;
}

/// After the whole series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Series;

impl Variant for Series {}

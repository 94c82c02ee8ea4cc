//! Variants: swap-in as it was before each patch of the series stays available (spec §5).
//!
//! A variant is a type. Its constants are folded at compile time, so a behaviour that is not chosen
//! costs nothing. The variants from before are in [`crate::before`].

use folioswap_slots::Order;
use std::marker::PhantomData;

/// Treatment of a cached folio that is larger than the entry (patch 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargerCached {
    /// Index and entry are rounded down to the folio.
    Used,
    /// Refused with EEXIST for ever, because its first entry is not the one looked for.
    Refused,
}

/// Condition for the insertion of a folio (patch 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The whole range holds exactly the expected consecutive entries.
    WholeRange,
    /// The range's first slot holds an entry of the folio's order.
    FirstEntry,
}

/// When a large entry is split (patches 1 and 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntrySplit {
    /// Where a smaller folio really arrived.
    SmallerFolioArrived,
    /// As soon as a large folio cannot be had, before the folio that replaces it is known.
    OnMiss,
}

/// How the order of the entry is found out (patch 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderWalk {
    /// With the confirmation that the entry is still there.
    WithConfirmation,
    /// The lookup that found the entry told it; the insertion checks that the entry is still there.
    /// One walk less than the series.
    FromLookup,
    /// By a walk of its own.
    OfItsOwn,
}

/// Fallback when a large swap-in is not possible, on a device that needs no readahead (patch
/// 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Each smaller order in turn, the largest first, in the same direct path (the kernel of 2026).
    EachSmallerOrder,
    /// Order 0 in the same direct path.
    DirectOrderZero,
    /// Readahead through the swap cache.
    CachedReadahead,
}

/// The entry that is looked up in the swap cache (patch 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The entry of the index.
    SubEntry,
    /// The first entry of the large entry.
    FirstEntry,
}

/// When a major fault is counted (patch 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MajorFault {
    /// Once reading really starts.
    ReadingStarts,
    /// At each miss of the swap cache, whatever follows.
    EachMiss,
}

/// Fate of the stored copy of a folio that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredCopy {
    /// It is freed, as in the kernel: the folio is written anew when it leaves.
    Freed,
    /// It stays until the folio is written to: a folio that did not change leaves without being
    /// written.
    KeptWhileClean,
}

/// Checks once the folio is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderLock {
    /// The folio alone: the insertion checks the whole range anyway. One walk less than the series.
    FolioAlone,
    /// The first entry is still in the map (the series).
    FirstEntry,
    /// That, and the order, by two walks (before the series).
    FirstEntryAndOrder,
}

/// Points where other threads can interrupt a swap-in. It holds no lock there but that of a new
/// folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The device is pinned, and nothing has been looked at yet.
    Begun,
    /// No folio is cached.
    Missed,
    /// A large folio cannot be had.
    NoLargeFolio,
    /// There is a folio, cached or read; it is not locked yet, or new.
    Arrived,
    /// The folio is ready to be inserted.
    BeforeInsertion,
}

/// The behaviour of an object's swap-in.
pub trait Variant: 'static {
    /// See [`LargerCached`].
    const LARGER_CACHED: LargerCached = LargerCached::Used;
    /// See [`Insertion`].
    const INSERTION: Insertion = Insertion::WholeRange;
    /// See [`EntrySplit`].
    const ENTRY_SPLIT: EntrySplit = EntrySplit::SmallerFolioArrived;
    /// See [`OrderWalk`].
    const ORDER_WALK: OrderWalk = OrderWalk::WithConfirmation;
    /// See [`Fallback`].
    const FALLBACK: Fallback = Fallback::DirectOrderZero;
    /// See [`Lookup`].
    const LOOKUP: Lookup = Lookup::SubEntry;
    /// See [`MajorFault`].
    const MAJOR_FAULT: MajorFault = MajorFault::ReadingStarts;
    /// See [`UnderLock`].
    const UNDER_LOCK: UnderLock = UnderLock::FirstEntry;

    /// See [`StoredCopy`].
    const STORED_COPY: StoredCopy = StoredCopy::Freed;

    /// Called at each [`Step`]: see [`Hooks::at`].
    #[inline]
    fn at(step: Step) {
        let _ = step;
    }

    /// Whether a large folio can be had: see [`Hooks::may_allocate_large`].
    #[inline]
    fn may_allocate_large(order: Order) -> bool {
        let _ = order;
        true
    }
}

/// Actions that a test or an experiment puts into a swap-in: see [`Hooked`].
pub trait Hooks: 'static {
    /// Called at each [`Step`], so that other threads can proceed just there.
    #[inline]
    fn at(step: Step) {
        let _ = step;
    }

    /// Whether a folio of `order`, above 0, can be had; false tests the fallback.
    #[inline]
    fn may_allocate_large(order: Order) -> bool {
        let _ = order;
        true
    }
}

/// A variant with hooks.
#[derive(Clone, Copy, Debug)]
pub struct Hooked<V, H>(PhantomData<(V, H)>);

impl<V: Variant, H: Hooks> Variant for Hooked<V, H> {
    const LARGER_CACHED: LargerCached = V::LARGER_CACHED;
    const INSERTION: Insertion = V::INSERTION;
    const ENTRY_SPLIT: EntrySplit = V::ENTRY_SPLIT;
    const ORDER_WALK: OrderWalk = V::ORDER_WALK;
    const FALLBACK: Fallback = V::FALLBACK;
    const LOOKUP: Lookup = V::LOOKUP;
    const MAJOR_FAULT: MajorFault = V::MAJOR_FAULT;
    const UNDER_LOCK: UnderLock = V::UNDER_LOCK;
    const STORED_COPY: StoredCopy = V::STORED_COPY;

    #[inline]
    fn at(step: Step) {
        H::at(step);
    }

    #[inline]
    fn may_allocate_large(order: Order) -> bool {
        H::may_allocate_large(order)
    }
}

/// Today's behaviour: the whole series, with one walk instead of three, each smaller order tried
/// where a large folio cannot be had, and clean copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current;

impl Variant for Current {
    const ORDER_WALK: OrderWalk = OrderWalk::FromLookup;
    const FALLBACK: Fallback = Fallback::EachSmallerOrder;
    const UNDER_LOCK: UnderLock = UnderLock::FolioAlone;
    const STORED_COPY: StoredCopy = StoredCopy::KeptWhileClean;
}

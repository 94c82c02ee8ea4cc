//! Variants: swap-in as it was before each patch of the series stays available (spec §5).
//!
//! A variant is a type; its constants are folded at compile time, so that what is not chosen costs nothing. The ones from before are in
//! [`crate::before`].

use std::marker::PhantomData;

/// A cached folio that is larger than the entry (patch 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargerCached {
    /// Index and entry are rounded down to the folio.
    Used,
    /// Its first entry is not the one that was looked for: try again (EEXIST), for ever.
    Refused,
}

/// What must hold where a folio is inserted (patch 1).
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
    /// As soon as a large folio cannot be had, before it is known what will be.
    OnMiss,
}

/// How the order of the entry is learnt (patch 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderWalk {
    /// With the confirmation that the entry is still there.
    WithConfirmation,
    /// The lookup that found the entry told it; whether the entry is still there shows at the insertion. One walk less than the series.
    FromLookup,
    /// By a walk of its own.
    OfItsOwn,
}

/// What follows a large swap-in that is not possible, on a device that needs no readahead (patch 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Order 0 in the same direct path.
    DirectOrderZero,
    /// Readahead through the swap cache.
    CachedReadahead,
}

/// Which entry is looked up in the swap cache (patch 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The one of the index.
    SubEntry,
    /// The first one of the large entry.
    FirstEntry,
}

/// When a major fault is counted (patch 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MajorFault {
    /// Once reading really starts.
    ReadingStarts,
    /// At each miss of the swap cache, whatever becomes of it.
    EachMiss,
}

/// What becomes of the stored copy of a folio that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredCopy {
    /// It is freed, as in the kernel: the folio is written anew when it leaves.
    Freed,
    /// It stays until the folio is written to: unchanged, the folio leaves without being written.
    KeptWhileClean,
}

/// What is looked at once the folio is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderLock {
    /// The folio alone: the insertion looks at the whole range anyway. One walk less than the series.
    FolioAlone,
    /// The first entry is still in the map (the series).
    FirstEntry,
    /// That, and the order, by two walks (before).
    FirstEntryAndOrder,
}

/// Where a swap-in can be interrupted by others: no lock is held there but that of a new folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The device is pinned, and nothing was looked at yet.
    Begun,
    /// No folio is cached.
    Missed,
    /// A large folio cannot be had.
    NoLargeFolio,
    /// There is a folio, cached or read; it is not locked yet, or new.
    Arrived,
    /// All is ready to be inserted.
    BeforeInsertion,
}

/// How an object swaps in.
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
    fn may_allocate_large() -> bool {
        true
    }
}

/// What a test or an experiment puts into a swap-in: see [`Hooked`].
pub trait Hooks: 'static {
    /// Called at each [`Step`], so that others go on just there.
    #[inline]
    fn at(step: Step) {
        let _ = step;
    }

    /// Whether a large folio can be had, to see what happens if not.
    #[inline]
    fn may_allocate_large() -> bool {
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
    fn may_allocate_large() -> bool {
        H::may_allocate_large()
    }
}

/// As it is today: all of the series, with one walk instead of three, and clean copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current;

impl Variant for Current {
    const ORDER_WALK: OrderWalk = OrderWalk::FromLookup;
    const UNDER_LOCK: UnderLock = UnderLock::FolioAlone;
    const STORED_COPY: StoredCopy = StoredCopy::KeptWhileClean;
}

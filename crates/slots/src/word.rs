//! Slot word: the state of one slot in 64 bits. Every transition is a pure function old -> new
//! (spec §0).
//!
//! ```text
//!          63   60 59   58                          2   1   0
//! free     |                      all zero                  |
//! shadow   | count | zero |     working-set information | 1 |   58 bits from bit 1
//! cached   | count | zero |  0  | folio (32 bits) | 1   0   |
//! bad      |              all ones                | 0 0 0   |
//! ```
//! Counts 0 to 14 are the swap count itself; 15 says that the cluster's overflow array has it. A
//! shadow has a count of at least 1, because with count 0 the slot is free. A cached slot with
//! count 0 is *only cached*: it becomes free when the folio leaves the swap cache.

use crate::entry::FolioId;

/// Largest count kept in the word.
pub(crate) const COUNT_IN_WORD_MAX: u8 = 14;
/// Count in the word that refers to the overflow array.
pub(crate) const COUNT_OVERFLOWED: u8 = 15;

const COUNT_SHIFT: u32 = 60;
const ZERO_BIT: u64 = 1 << 59;
const SHADOW_TAG: u64 = 0b1;
const CACHED_TAG: u64 = 0b10;
const CACHED_TAG_MASK: u64 = 0b11;
const SHADOW_MASK: u64 = (1 << 58) - 1;
const FOLIO_SHIFT: u32 = 2;
const BAD: u64 = !0 << 3;

/// Working-set information left behind by an evicted folio, 58 bits; [`Shadow::EMPTY`] if there is
/// none. The caller defines the bits (the engine's layout: `workingset.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shadow(u64);

impl Shadow {
    /// No information.
    pub const EMPTY: Shadow = Shadow(0);

    /// A shadow of these bits; `None` above 58 bits.
    pub const fn new(value: u64) -> Option<Shadow> {
        if value <= SHADOW_MASK { Some(Shadow(value)) } else { None }
    }

    /// The 58 bits.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A slot word, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotWord {
    /// The slot has no owner.
    Free,
    /// Swapped out: the page is on the device only.
    Shadow {
        /// Working-set information.
        shadow: Shadow,
        /// Swap count, at least 1.
        count: u64,
        /// The page is all zero; the device holds nothing for it.
        zero: bool,
    },
    /// A folio in the swap cache stands for the slot.
    Cached {
        /// The folio.
        folio: FolioId,
        /// Swap count; 0 when only the cache holds the slot.
        count: u64,
        /// The page is all zero; the device holds nothing for it.
        zero: bool,
    },
    /// Never to be used: header, bad block, or past the end of the device.
    Bad,
}

/// Whether a slot's page is all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ZeroMark {
    /// The page's bytes are on the device.
    #[default]
    Stored,
    /// The page is all zero and the device holds nothing for it.
    AllZero,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordKind {
    Free,
    Shadow,
    Cached,
    Bad,
}

/// Outcome of removing one count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutStep {
    /// The last count went and no folio is cached: the slot becomes free.
    Freed,
    /// A count went, others are left.
    Lowered(Word),
    /// The last count went, and a cached folio stays.
    OnlyCached(Word),
    /// The overflow array has the count.
    Overflowed,
    /// The slot is free, bad or only cached: it had no count.
    NoCount,
}

/// Outcome of adding one count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DupStep {
    Raised(Word),
    /// The count passes 14: the caller writes this word, and 15 into the overflow array.
    PassesWord(Word),
    /// The overflow array has the count already.
    Overflowed,
    NoEntry,
    Bad,
}

impl Word {
    pub(crate) const FREE: Word = Word(0);
    pub(crate) const BAD: Word = Word(BAD);

    #[inline]
    pub(crate) const fn from_raw(raw: u64) -> Word {
        Word(raw)
    }

    #[inline]
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    /// The word of a freshly allocated slot: cached, count 1 (spec §2.7).
    #[inline]
    pub(crate) const fn allocated(folio: FolioId) -> Word {
        Word(1 << COUNT_SHIFT | (folio.0 as u64) << FOLIO_SHIFT | CACHED_TAG)
    }

    /// The word of a slot that is cached and has no count.
    #[inline]
    pub(crate) const fn only_cached(folio: FolioId) -> Word {
        Word((folio.0 as u64) << FOLIO_SHIFT | CACHED_TAG)
    }

    #[inline]
    pub(crate) const fn kind(self) -> WordKind {
        if self.0 == 0 {
            WordKind::Free
        } else if self.0 & SHADOW_TAG != 0 {
            WordKind::Shadow
        } else if self.0 & CACHED_TAG_MASK == CACHED_TAG {
            WordKind::Cached
        } else {
            WordKind::Bad
        }
    }

    #[inline]
    pub(crate) const fn is_free(self) -> bool {
        self.0 == 0
    }

    /// The word's count; meaningless for free and bad words.
    #[inline]
    pub(crate) const fn count(self) -> u8 {
        (self.0 >> COUNT_SHIFT) as u8
    }

    #[inline]
    pub(crate) const fn with_count(self, count: u8) -> Word {
        Word(self.0 & !(0xf << COUNT_SHIFT) | (count as u64) << COUNT_SHIFT)
    }

    #[inline]
    pub(crate) const fn zero_mark(self) -> ZeroMark {
        if self.0 & ZERO_BIT != 0 { ZeroMark::AllZero } else { ZeroMark::Stored }
    }

    #[inline]
    pub(crate) const fn with_zero_mark(self, mark: ZeroMark) -> Word {
        match mark {
            ZeroMark::Stored => Word(self.0 & !ZERO_BIT),
            ZeroMark::AllZero => Word(self.0 | ZERO_BIT),
        }
    }

    /// The folio of a cached word.
    #[inline]
    pub(crate) const fn folio(self) -> Option<FolioId> {
        match self.kind() {
            WordKind::Cached => Some(FolioId((self.0 >> FOLIO_SHIFT) as u32)),
            _ => None,
        }
    }

    /// 0 if `folio` stands for the word, whatever its count and zero mark.
    #[inline]
    pub(crate) const fn differs_from(self, folio: FolioId) -> u64 {
        (self.0 ^ Word::only_cached(folio).0) & !(0xf << COUNT_SHIFT | ZERO_BIT)
    }

    /// The working-set information of a shadow word.
    #[inline]
    pub(crate) const fn shadow(self) -> Option<Shadow> {
        match self.kind() {
            WordKind::Shadow => Some(Shadow(self.0 >> 1 & SHADOW_MASK)),
            _ => None,
        }
    }

    /// Whether the swap cache alone holds the slot.
    #[inline]
    pub(crate) const fn is_only_cached(self) -> bool {
        matches!(self.kind(), WordKind::Cached) && self.count() == 0
    }

    /// A folio enters the swap cache, or takes another's place; count and zero mark stay.
    #[inline]
    pub(crate) const fn into_cached(self, folio: FolioId) -> Word {
        Word(self.0 & (0xf << COUNT_SHIFT | ZERO_BIT) | (folio.0 as u64) << FOLIO_SHIFT | CACHED_TAG)
    }

    /// The folio leaves the swap cache; a slot without a count becomes free.
    #[inline]
    pub(crate) const fn into_shadow(self, shadow: Shadow) -> Word {
        if self.count() == 0 {
            return Word::FREE;
        }
        Word(self.0 & (0xf << COUNT_SHIFT | ZERO_BIT) | shadow.0 << 1 | SHADOW_TAG)
    }

    /// Removes one count.
    #[inline]
    pub(crate) const fn put(self) -> PutStep {
        match (self.kind(), self.count()) {
            (WordKind::Free | WordKind::Bad, _) | (_, 0) => PutStep::NoCount,
            (_, COUNT_OVERFLOWED) => PutStep::Overflowed,
            (WordKind::Shadow, 1) => PutStep::Freed,
            (WordKind::Cached, 1) => PutStep::OnlyCached(self.with_count(0)),
            (_, count) => PutStep::Lowered(self.with_count(count - 1)),
        }
    }

    /// Adds one count.
    #[inline]
    pub(crate) const fn dup(self) -> DupStep {
        match (self.kind(), self.count()) {
            (WordKind::Free, _) => DupStep::NoEntry,
            (WordKind::Bad, _) => DupStep::Bad,
            (_, COUNT_OVERFLOWED) => DupStep::Overflowed,
            (_, COUNT_IN_WORD_MAX) => DupStep::PassesWord(self.with_count(COUNT_OVERFLOWED)),
            (_, count) => DupStep::Raised(self.with_count(count + 1)),
        }
    }

    /// Decodes the word. `overflow` is the count in the overflow array, used only if the word
    /// refers to it.
    pub(crate) fn decode(self, overflow: u64) -> SlotWord {
        let count = if self.count() == COUNT_OVERFLOWED { overflow } else { u64::from(self.count()) };
        let zero = self.zero_mark() == ZeroMark::AllZero;
        match (self.kind(), self.folio(), self.shadow()) {
            (WordKind::Free, ..) => SlotWord::Free,
            (_, Some(folio), _) => SlotWord::Cached { folio, count, zero },
            (_, _, Some(shadow)) => SlotWord::Shadow { shadow, count, zero },
            _ => SlotWord::Bad,
        }
    }
}

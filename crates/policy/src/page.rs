//! The state of one managed page: one 64-bit word, and every change of it is a pure function.
//!
//! ```text
//!  63                                                       8   7..5   3    4,2..0
//! +----------------------------------------------------------+--------+---+-------+
//! | swap entry (raw)  or  epoch of the removal               |   0    | H | state |
//! +----------------------------------------------------------+--------+---+-------+
//! ```
//!
//! | state | where the bytes are | changed by |
//! |---|---|---|
//! | `Present` | in memory, or nowhere (never touched: reads as zero) | evictor, reader of events |
//! | `Isolated` | on the way from memory to staging | the evictor, which holds the move lock |
//! | `Leaving` | in staging: the folio is in the swap cache | evictor, fault handler (by CAS) |
//! | `Stored` | on a device, by the entry's location | fault handler, reader of events |
//! | `Returning` | being copied back by one fault handler | that handler |
//! | `Filling` | as `Present` or `Removed`; zeroes come *if nothing is there* | that handler |
//! | `Clean` | in memory, write-protected, *and* on a device by its entry | all three, by CAS |
//! | `Removed` | nowhere: the program gave the page up; reads as zero | as `Present` |
//!
//! `H` is the referenced bit that user space lacks. It is set when a page comes back from staging
//! or a device, and the evictor's clock passes such a page once before it takes it (second chance).
//!
//! `Clean` spares a write-back: a page that was brought back for a read keeps its stored copy, and
//! leaves again without being compressed or written. The word alone does not prove that the copy
//! still equals the page, because a protection is lifted without a change of the word while a fork
//! freezes the words. The kernel supplies the proof: the page is protected *now*. The evictor asks
//! after it has claimed the page (`Isolated`), when no thread lifts protections any more. A clean
//! page is protected together with its contents, never later. After the claim it is `Leaving` like
//! any other page, and becomes `Stored` without having been written.
//!
//! `Filling` differs from `Present` because zeroes may be put only where there is nothing *and
//! nothing has just been taken out*. A page that the evictor took between the handler's look at the
//! word and its filling would be zeroed under its own swap entry (`docs/races.md`, race 36).
//!
//! `Isolated` differs from `Leaving` because a fault handler may copy from staging only pages that
//! have certainly arrived there: a hole in staging would read as zeroes. `Removed` differs from
//! `Present` because the kernel tells of a removal *before* it zaps the pages. A page that is still
//! present under a young `Removed` is about to vanish and must not be taken out, or the program
//! would read back what it gave up (`docs/races.md`, race 7).

use core::fmt;
use folioswap_slots::SwapEntry;

const STATE_BITS: u64 = 0b1_0111;
const HOT: u64 = 1 << 3;
const VALUE_SHIFT: u32 = 8;

const PRESENT: u64 = 0;
const ISOLATED: u64 = 1;
const LEAVING: u64 = 2;
const STORED: u64 = 3;
const RETURNING_FROM_LEAVING: u64 = 4;
const RETURNING_FROM_STORED: u64 = 5;
const REMOVED: u64 = 6;
const CLEAN: u64 = 7;
/// A flag over [`PRESENT`] or [`REMOVED`].
const FILLING: u64 = 1 << 4;
const FILLING_REMOVED: u64 = FILLING | REMOVED;

/// Whether the page has been touched since the evictor's clock passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// The page is not known to have been touched.
    Cold,
    /// The page came back from staging or a device.
    Hot,
}

impl Heat {
    const fn bits(self) -> u64 {
        match self {
            Heat::Cold => 0,
            Heat::Hot => HOT,
        }
    }
}

/// A page word, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table at the head of this module defines them")]
pub enum PageState {
    Present(Heat),
    Isolated(SwapEntry),
    Leaving(SwapEntry),
    Stored(SwapEntry),
    Returning(SwapEntry),
    Filling,
    Clean(SwapEntry, Heat),
    Removed { epoch: u32 },
}

/// A page word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageWord(u64);

impl fmt::Debug for PageWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(f)
    }
}

impl PageWord {
    /// Never touched, or present and cold. The word is all-zero, so that fresh tables need no
    /// initialisation.
    pub const PRESENT: PageWord = PageWord(PRESENT);
    /// Present and hot.
    pub const PRESENT_HOT: PageWord = PageWord(PRESENT | HOT);

    /// Present, with this heat.
    pub const fn present(heat: Heat) -> Self {
        PageWord(PRESENT | heat.bits())
    }

    /// Makes a word from its bits.
    pub const fn from_bits(bits: u64) -> Self {
        PageWord(bits)
    }
    /// Returns the bits of the word.
    pub const fn bits(self) -> u64 {
        self.0
    }

    const fn with(state: u64, entry: SwapEntry) -> Self {
        PageWord(state | entry.to_raw() << VALUE_SHIFT)
    }
    /// Reads the entry. The state must hold one; an entry is never 0.
    const fn entry_unchecked(self) -> SwapEntry {
        match SwapEntry::from_raw(self.0 >> VALUE_SHIFT) {
            Some(entry) => entry,
            None => panic!("a state that holds an entry holds no entry"),
        }
    }

    /// Decodes the word.
    pub const fn state(self) -> PageState {
        let heat = if self.0 & HOT != 0 { Heat::Hot } else { Heat::Cold };
        match self.0 & STATE_BITS {
            ISOLATED => PageState::Isolated(self.entry_unchecked()),
            LEAVING => PageState::Leaving(self.entry_unchecked()),
            STORED => PageState::Stored(self.entry_unchecked()),
            RETURNING_FROM_LEAVING | RETURNING_FROM_STORED => PageState::Returning(self.entry_unchecked()),
            REMOVED => PageState::Removed { epoch: (self.0 >> VALUE_SHIFT) as u32 },
            CLEAN => PageState::Clean(self.entry_unchecked(), heat),
            FILLING | FILLING_REMOVED => PageState::Filling,
            _ => PageState::Present(heat),
        }
    }

    /// Returns the swap entry that the word refers to, if any.
    pub const fn entry(self) -> Option<SwapEntry> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED | FILLING | FILLING_REMOVED => None,
            _ => Some(self.entry_unchecked()),
        }
    }

    /// `Present | Removed | Stored -> Isolated`: the evictor, holding the move lock, before the
    /// move.
    ///
    /// `Stored` is included because the page may be present all the same: it may have been served
    /// while a fork froze the words. Only the move can tell.
    pub const fn isolate(self, entry: SwapEntry) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED | STORED => Some(Self::with(ISOLATED, entry)),
            _ => None,
        }
    }
    /// `Isolated -> Leaving`: the evictor, holding the move lock, after the page has arrived in
    /// staging.
    pub const fn moved(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            ISOLATED => Some(Self::with(LEAVING, self.entry_unchecked())),
            _ => None,
        }
    }
    /// `Isolated -> before`: the evictor, holding the move lock, after the kernel refused to move
    /// the page.
    pub const fn not_moved(self, before: Self) -> Option<Self> {
        match self.0 & STATE_BITS {
            ISOLATED => Some(before),
            _ => None,
        }
    }
    /// `Present | Removed -> Filling`: the fault handler, before it puts zeroes where nothing
    /// should be. The evictor does not take the page until the filling is over.
    pub const fn fill(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED => Some(PageWord(self.0 | FILLING)),
            _ => None,
        }
    }
    /// `Filling -> Present`: the fault handler, after it has put the zeroes.
    pub const fn filled(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            FILLING => Some(PageWord(self.0 & !FILLING)),
            FILLING_REMOVED => Some(Self::PRESENT),
            _ => None,
        }
    }
    /// `Filling ->` the state before it: the fault handler, when something was there already, or
    /// when the filling cannot be done now.
    pub const fn not_filled(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            FILLING | FILLING_REMOVED => Some(PageWord(self.0 & !FILLING)),
            _ => None,
        }
    }
    /// `Leaving -> Stored`: the evictor, after the write-back is complete and the location is set.
    pub const fn written(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            LEAVING => Some(Self::with(STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// `Present | Removed -> Stored`: the evictor, for a page that holds nothing. The page becomes
    /// a copy of another page that is stored, and holds its entry once more.
    pub const fn duplicate(self, entry: SwapEntry) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED => Some(Self::with(STORED, entry)),
            _ => None,
        }
    }
    /// `Leaving | Stored -> Returning`: the fault handler, when the page is wanted.
    pub const fn claim(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            LEAVING => Some(Self::with(RETURNING_FROM_LEAVING, self.entry_unchecked())),
            STORED => Some(Self::with(RETURNING_FROM_STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// `Returning -> Leaving | Stored`: the fault handler, when the copy could not be made now. The
    /// word is as it was before the claim.
    pub const fn unclaim(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            RETURNING_FROM_LEAVING => Some(Self::with(LEAVING, self.entry_unchecked())),
            RETURNING_FROM_STORED => Some(Self::with(STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// `Returning -> Present (hot)`: the fault handler, after the page is in the program's memory
    /// and its swap entry is given up.
    pub const fn returned(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            RETURNING_FROM_LEAVING | RETURNING_FROM_STORED => Some(Self::PRESENT_HOT),
            _ => None,
        }
    }
    /// `Returning (from Stored) -> Clean`: the fault handler, after the page is in the program's
    /// memory, write-protected from its first moment there. The page keeps its stored copy.
    ///
    /// Returns `None` for a page that came from staging: it has no stored copy yet, or gives it up.
    pub const fn returned_clean(self, heat: Heat) -> Option<Self> {
        match self.0 & STATE_BITS {
            RETURNING_FROM_STORED => {
                let clean = Self::with(CLEAN, self.entry_unchecked()).0;
                Some(PageWord(clean | heat.bits()))
            }
            _ => None,
        }
    }
    /// `Clean -> Present (hot)`: the fault handler, before it lifts the protection of a page that
    /// is about to be written. The caller must free the entry.
    pub const fn dirtied(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(Self::PRESENT_HOT),
            _ => None,
        }
    }
    /// `Clean -> Present`, with the same heat: the stored copy is given up. The evictor does so for
    /// its space, the handler because the memory around it is written. The caller must free the
    /// entry. The page stays protected until it is written, or until the handler lifts the
    /// protection.
    pub const fn copy_given_up(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(PageWord(PRESENT | self.0 & HOT)),
            _ => None,
        }
    }
    /// `Clean -> Stored`: the fault handler, when the page is not in the program's memory although
    /// the word says so. Its stored copy stands for it.
    pub const fn missed(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(Self::with(STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// `Clean -> Isolated`: the evictor, holding the move lock, before it asks the kernel whether
    /// the page is still protected.
    pub const fn isolate_clean(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(Self::with(ISOLATED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// `Present (hot) -> Present`, `Clean (hot) -> Clean`: the evictor's clock. Returns `None` when
    /// the page was cold or is elsewhere.
    pub const fn cooled(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | CLEAN if self.0 & HOT != 0 => Some(PageWord(self.0 & !HOT)),
            _ => None,
        }
    }
    /// `Present | Leaving | Stored | Clean | Removed -> Removed`: the reader of events, holding the
    /// move lock, when the program gave the page up.
    ///
    /// The caller must free the entry of the old word if that was `Stored` or `Clean`. The entry of
    /// a `Leaving` word stays the evictor's, which finds out when its write-back ends. Returns
    /// `None` while a handler brings the page back; that handler is the reader itself, which
    /// unclaims first.
    pub const fn remove(self, epoch: u32) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | LEAVING | STORED | CLEAN | REMOVED => {
                Some(PageWord(REMOVED | (epoch as u64) << VALUE_SHIFT))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;

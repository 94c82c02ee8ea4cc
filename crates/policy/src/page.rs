//! The state of one managed page: one 64-bit word, and every change of it a pure function old -> new.
//!
//! ```text
//!  63                                                       8   7..5   3    4,2..0
//! +----------------------------------------------------------+--------+---+-------+
//! | swap entry (raw)  or  epoch of the removal               |   0    | H | state |
//! +----------------------------------------------------------+--------+---+-------+
//! ```
//!
//! | state | where the bytes are | who may change it |
//! |---|---|---|
//! | `Present` | in the program's memory, or nowhere (never touched: reads as zero) | evictor, reader of events |
//! | `Isolated` | on the way from the program's memory to staging | the evictor, which holds the move lock |
//! | `Leaving` | in staging: the folio is in the swap cache | evictor and fault handler, by compare-exchange |
//! | `Stored` | on a device, by the entry's location | fault handler, reader of events |
//! | `Returning` | being copied back by one fault handler | that handler |
//! | `Filling` | as `Present` or `Removed`; one fault handler is about to put zeroes there *if nothing is there* | that handler |
//! | `Clean` | in the program's memory, write-protected there, *and* on a device by the entry's location | evictor, fault handler and reader of events, by compare-exchange |
//! | `Removed` | nowhere: the program gave the page up; reads as zero | as `Present` |
//!
//! `H` is the referenced bit that user space lacks: it is set when a page comes back from staging or a device, and the
//! evictor's clock passes such a page once before it takes it (second chance).
//!
//! `Clean` spares a write-back: a page that was brought back for a read keeps its stored copy, and leaves again without
//! being compressed or written. The word alone does not prove that the copy still equals the page: while a fork freezes
//! the words, a protection is lifted without a change of the word. The proof is the kernel's: the page is protected *now*,
//! asked after the evictor has claimed it (`Isolated`), when nobody lifts protections any more. A clean page is protected
//! together with its contents, never later. Then it is `Leaving` like any other page, and `Stored` without having been written.
//!
//! `Filling` is apart from `Present` because zeroes may be put only where there is nothing *and nothing has just been taken out*:
//! a page that the evictor took between the handler's look at the word and its filling would be zeroed under its own swap entry
//! (`docs/design.md`, race 36).
//!
//! `Isolated` and `Leaving` are apart because a fault handler may copy from staging only what has certainly arrived
//! there: a hole in staging would read as zeroes. `Removed` is apart from `Present` because the kernel tells of a removal
//! *before* it zaps the pages: what is still present under a young `Removed` is about to vanish and must not be taken out,
//! or the program would read back what it gave up (`docs/design.md`, race 7).

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
/// Set over [`PRESENT`] or [`REMOVED`].
const FILLING: u64 = 1 << 4;
const FILLING_REMOVED: u64 = FILLING | REMOVED;

/// Has the page been touched since the evictor's clock passed it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Not known to have been.
    Cold,
    /// It came back from staging or a device.
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

/// The word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageWord(u64);

impl fmt::Debug for PageWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(f)
    }
}

impl PageWord {
    /// Never touched, or present and cold. All-zero, so that fresh tables need no initialisation.
    pub const PRESENT: PageWord = PageWord(PRESENT);
    /// Present and hot.
    pub const PRESENT_HOT: PageWord = PageWord(PRESENT | HOT);

    /// Present, and as warm as that.
    pub const fn present(heat: Heat) -> Self {
        PageWord(PRESENT | heat.bits())
    }

    /// The word of its bits.
    pub const fn from_bits(bits: u64) -> Self {
        PageWord(bits)
    }
    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    const fn with(state: u64, entry: SwapEntry) -> Self {
        PageWord(state | entry.to_raw() << VALUE_SHIFT)
    }
    /// Only for states that hold an entry, which is never 0.
    const fn entry_unchecked(self) -> SwapEntry {
        match SwapEntry::from_raw(self.0 >> VALUE_SHIFT) {
            Some(entry) => entry,
            None => panic!("a state that holds an entry holds no entry"),
        }
    }

    /// Takes the word apart.
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

    /// The swap entry that the word refers to, if any.
    pub const fn entry(self) -> Option<SwapEntry> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED | FILLING | FILLING_REMOVED => None,
            _ => Some(self.entry_unchecked()),
        }
    }

    /// Evictor, holding the move lock, before the move: `Present | Removed | Stored -> Isolated`. (`Stored`: the page may be
    /// present all the same, because it was served while a fork froze the words. Only the move can tell.)
    pub const fn isolate(self, entry: SwapEntry) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED | STORED => Some(Self::with(ISOLATED, entry)),
            _ => None,
        }
    }
    /// Evictor, holding the move lock, the page having arrived in staging: `Isolated -> Leaving`.
    pub const fn moved(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            ISOLATED => Some(Self::with(LEAVING, self.entry_unchecked())),
            _ => None,
        }
    }
    /// Evictor, holding the move lock, the kernel having refused to move the page: `Isolated ->` what it was.
    pub const fn not_moved(self, before: Self) -> Option<Self> {
        match self.0 & STATE_BITS {
            ISOLATED => Some(before),
            _ => None,
        }
    }
    /// Fault handler, before it puts zeroes where nothing should be: `Present | Removed -> Filling`. Until it is over the evictor
    /// does not take the page.
    pub const fn fill(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED => Some(PageWord(self.0 | FILLING)),
            _ => None,
        }
    }
    /// Fault handler: zeroes are there: `Filling -> Present`.
    pub const fn filled(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            FILLING => Some(PageWord(self.0 & !FILLING)),
            FILLING_REMOVED => Some(Self::PRESENT),
            _ => None,
        }
    }
    /// Fault handler: something was there already, or it cannot be done now: `Filling ->` what it was.
    pub const fn not_filled(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            FILLING | FILLING_REMOVED => Some(PageWord(self.0 & !FILLING)),
            _ => None,
        }
    }
    /// Evictor: the write-back is complete and the location is set: `Leaving -> Stored`.
    pub const fn written(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            LEAVING => Some(Self::with(STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// Evictor, of a page that holds nothing: it is a copy of another that is stored, and holds its entry once more:
    /// `Present | Removed -> Stored`.
    pub const fn duplicate(self, entry: SwapEntry) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | REMOVED => Some(Self::with(STORED, entry)),
            _ => None,
        }
    }
    /// Fault handler: the page is wanted: `Leaving | Stored -> Returning`.
    pub const fn claim(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            LEAVING => Some(Self::with(RETURNING_FROM_LEAVING, self.entry_unchecked())),
            STORED => Some(Self::with(RETURNING_FROM_STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// Fault handler: the copy could not be made now; everything is as before: `Returning -> Leaving | Stored`.
    pub const fn unclaim(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            RETURNING_FROM_LEAVING => Some(Self::with(LEAVING, self.entry_unchecked())),
            RETURNING_FROM_STORED => Some(Self::with(STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// Fault handler: the page is in the program's memory and its swap entry is given up: `Returning -> Present (hot)`.
    pub const fn returned(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            RETURNING_FROM_LEAVING | RETURNING_FROM_STORED => Some(Self::PRESENT_HOT),
            _ => None,
        }
    }
    /// Fault handler: the page is in the program's memory, write-protected from its first moment there, and keeps its
    /// stored copy: `Returning (from Stored) -> Clean`. What came from staging has no stored copy yet, or gives it up: `None`.
    pub const fn returned_clean(self, heat: Heat) -> Option<Self> {
        match self.0 & STATE_BITS {
            RETURNING_FROM_STORED => {
                let clean = Self::with(CLEAN, self.entry_unchecked()).0;
                Some(PageWord(clean | heat.bits()))
            }
            _ => None,
        }
    }
    /// Fault handler, before it lifts the protection: the page is about to be written: `Clean -> Present (hot)`. The entry
    /// is the caller's to free.
    pub const fn dirtied(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(Self::PRESENT_HOT),
            _ => None,
        }
    }
    /// The stored copy is given up, by the evictor for its space, by the handler because what is around is written: `Clean -> Present`, as
    /// warm as it was. The entry is the caller's to free. The page stays protected until it is written, or the handler lifts that.
    pub const fn copy_given_up(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(PageWord(PRESENT | self.0 & HOT)),
            _ => None,
        }
    }
    /// Fault handler: the page is not in the program's memory although the word says so; its stored copy stands for it:
    /// `Clean -> Stored`.
    pub const fn missed(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(Self::with(STORED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// Evictor, holding the move lock, before it asks the kernel whether the page is still protected: `Clean -> Isolated`.
    pub const fn isolate_clean(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            CLEAN => Some(Self::with(ISOLATED, self.entry_unchecked())),
            _ => None,
        }
    }
    /// Evictor's clock: `Present (hot) -> Present`, `Clean (hot) -> Clean`. `None` when it was cold or is elsewhere.
    pub const fn cooled(self) -> Option<Self> {
        match self.0 & STATE_BITS {
            PRESENT | CLEAN if self.0 & HOT != 0 => Some(PageWord(self.0 & !HOT)),
            _ => None,
        }
    }
    /// Reader of events, holding the move lock: the program gave the page up. The entry of the old word, if it was
    /// `Stored` or `Clean`, is then the caller's to free; that of `Leaving` stays the evictor's, which finds out when
    /// its write-back ends. `None` while one handler brings the page back (that is the reader itself: it unclaims first).
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

//! The location of a page's bytes, in 12 bytes, and the bit that pins them there.
//!
//! A location is a 64-bit word with a 32-bit *check word* beside it:
//!
//! | Kind | bits 0-2 | bit 3 | bits 4-15 | bits 16-55 | bits 56-63 | check word |
//! |---|---|---|---|---|---|---|
//! | none | 0 | LOCK | 0 | 0 | 0 | 0 |
//! | zero | 1 | LOCK | 0 | 0 | 0 | 0 |
//! | same-filled | 2 | LOCK | 0 | 0 (16-31), high half of the word (32-63) | | low half |
//! | zram | 3 | LOCK | length − 1 | handle | codec | checksum |
//! | file | 4 | LOCK | key | slot (16-63) | | checksum |
//!
//! The all-zero word means "none", so a table fresh from the system is empty. Every other word with
//! the LOCK bit clear was made by [`Place::pack`], and [`Place::unpack`] is its inverse.
//!
//! **The LOCK bit** belongs to the thread that reads, frees or moves the bytes: see
//! [`LocationCell`].

use core::sync::atomic::{AtomicU64, Ordering};

use crate::checksum::Checksum;
use crate::page::PAGE_SIZE;

/// Names an object in the zram store by chunk and 32-byte granule. Below 2^[`Handle::BITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u64);

impl Handle {
    /// Bits in a handle.
    pub const BITS: u32 = 40;

    /// Restores a handle from its number; `None` when the number has too many bits.
    #[inline]
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw >> Self::BITS == 0 { Some(Self(raw)) } else { None }
    }

    /// The number to store in place of the handle.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }
}

/// The owner of an object's bytes: any number below 2^[`Owner::BITS`], for example a swap entry.
/// The compactor hands it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(u64);

impl Owner {
    /// Bits in an owner.
    pub const BITS: u32 = 48;

    /// An owner from its number; `None` when the number has too many bits.
    #[inline]
    pub const fn new(raw: u64) -> Option<Self> {
        if raw >> Self::BITS == 0 { Some(Self(raw)) } else { None }
    }

    /// The owner's number.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }
}

/// Bytes that an object takes in the store: 1 to 4096. 4096 means that the page is not compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredLen(u16);

impl StoredLen {
    /// A page stored uncompressed.
    pub const UNCOMPRESSED: Self = Self(PAGE_SIZE as u16);

    /// A length from its number of bytes; `None` outside 1..=4096.
    #[inline]
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes >= 1 && bytes <= PAGE_SIZE { Some(Self(bytes as u16)) } else { None }
    }

    /// The length in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// The codec that made the bytes of an object in the zram store, and whether another one is still
/// to be tried on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// [`lz4`](crate::lz4), or no compression ([`StoredLen::UNCOMPRESSED`]). Recompression may
    /// still be tried.
    Lz4 = 0,
    /// As [`Lz4`](Self::Lz4), after zstd was tried and gained too little (zram's
    /// `ZRAM_INCOMPRESSIBLE`).
    Lz4Settled = 1,
    /// [`zstd`](crate::zstd).
    Zstd = 2,
    /// [`base_delta`](crate::base_delta): a page of numbers. No other codec is tried on it.
    BaseDelta = 3,
}

impl Codec {
    /// Bits in a codec.
    pub const BITS: u32 = 8;

    const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Lz4),
            1 => Some(Self::Lz4Settled),
            2 => Some(Self::Zstd),
            3 => Some(Self::BaseDelta),
            _ => None,
        }
    }
}

/// A page-sized slot in a file, counted in pages from its start. Below 2^[`FileSlot::BITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileSlot(u64);

impl FileSlot {
    /// Bits in a slot: with them the byte offset of any slot fits the kernel's signed 64 bits.
    pub const BITS: u32 = 48;

    /// A slot from its number; `None` when the number has too many bits.
    #[inline]
    pub const fn new(raw: u64) -> Option<Self> {
        if raw >> Self::BITS == 0 { Some(Self(raw)) } else { None }
    }

    /// The slot's number.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Offset of the slot's first byte in the file.
    #[inline]
    pub const fn offset_bytes(self) -> u64 {
        self.0 * PAGE_SIZE as u64
    }
}

/// The number of the key under which a page was encrypted before it was written. Below
/// 2^[`KeyNumber::BITS`]; 0 says that the page is not encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyNumber(u16);

impl KeyNumber {
    /// Bits in a number.
    pub const BITS: u32 = 12;
    /// No key: the page is stored as it is.
    pub const NONE: Self = Self(0);

    /// A number; `None` when it has too many bits.
    #[inline]
    pub const fn new(raw: u16) -> Option<Self> {
        if raw >> Self::BITS == 0 { Some(Self(raw)) } else { None }
    }

    /// The number, 0 for none.
    #[inline]
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Whether there is no key.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// The unpacked form of a location and its check word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The page has no bytes anywhere.
    None,
    /// The page is all zeroes; nothing is stored.
    Zero,
    /// The page is one repeated word; nothing else is stored.
    SameFilled {
        /// The word.
        pattern: u64,
    },
    /// The page is in the compressed store.
    Zram {
        /// The object's name.
        handle: Handle,
        /// The object's length.
        len: StoredLen,
        /// The codec that expands the object.
        codec: Codec,
        /// Over the object's bytes.
        checksum: Checksum,
    },
    /// The page is in the file.
    File {
        /// The page's slot.
        slot: FileSlot,
        /// The key under which the page is encrypted there.
        key: KeyNumber,
        /// Over the page, before it was encrypted.
        checksum: Checksum,
    },
}

/// A location word (layout in the module's table), with or without its LOCK bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Location(u64);

const KIND_MASK: u64 = 0b111;
const KIND_NONE: u64 = 0;
const KIND_ZERO: u64 = 1;
const KIND_SAME: u64 = 2;
const KIND_ZRAM: u64 = 3;
const KIND_FILE: u64 = 4;
const LOCK: u64 = 1 << 3;
const LEN_SHIFT: u32 = 4;
const LEN_MASK: u64 = 0xfff;
const KEY_SHIFT: u32 = 4;
const KEY_MASK: u64 = (1 << KeyNumber::BITS) - 1;
const PLACE_SHIFT: u32 = 16;
const HANDLE_MASK: u64 = ((1 << Handle::BITS) - 1) << PLACE_SHIFT;
const CODEC_SHIFT: u32 = PLACE_SHIFT + Handle::BITS;
const PATTERN_SHIFT: u32 = 32;

const _: () = assert!(PAGE_SIZE as u64 - 1 <= LEN_MASK && LEN_SHIFT + 12 == PLACE_SHIFT);
const _: () = assert!(KEY_SHIFT + KeyNumber::BITS == PLACE_SHIFT);
const _: () = assert!(CODEC_SHIFT + Codec::BITS <= 64 && PLACE_SHIFT + FileSlot::BITS <= 64);
const _: () = assert!(FileSlot::BITS + 12 < 63, "byte offsets fit a signed 64-bit number");
const _: () = assert!(size_of::<Location>() == 8 && size_of::<LocationCell>() == 8);

impl Location {
    /// The location "none", not locked.
    pub const NONE: Self = Self(KIND_NONE);

    /// Restores a word from its number.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number to store in place of the word.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether the LOCK bit is set.
    #[inline]
    pub const fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// The same location with the LOCK bit set.
    #[inline]
    pub const fn locked(self) -> Self {
        Self(self.0 | LOCK)
    }

    /// The same location with the LOCK bit clear.
    #[inline]
    pub const fn unlocked(self) -> Self {
        Self(self.0 & !LOCK)
    }

    /// The word of an object in the compressed store, not locked. The object's checksum goes into
    /// the check word.
    #[inline]
    pub const fn zram(handle: Handle, len: StoredLen, codec: Codec) -> Self {
        Self(
            KIND_ZRAM
                | (len.0 as u64 - 1) << LEN_SHIFT
                | handle.0 << PLACE_SHIFT
                | (codec as u64) << CODEC_SHIFT,
        )
    }

    /// The word after its object moved within the compressed store from `old` to `new`; `None` when
    /// the word does not name `old`.
    #[inline]
    pub const fn moved(self, old: Handle, new: Handle) -> Option<Self> {
        if self.0 & KIND_MASK == KIND_ZRAM && self.0 & HANDLE_MASK == old.0 << PLACE_SHIFT {
            Some(Self(self.0 & !HANDLE_MASK | new.0 << PLACE_SHIFT))
        } else {
            None
        }
    }

    /// The word of a file slot, not locked, whose page is encrypted under this key. The page's
    /// checksum goes into the check word.
    #[inline]
    pub const fn file(slot: FileSlot, key: KeyNumber) -> Self {
        Self(KIND_FILE | (key.0 as u64) << KEY_SHIFT | slot.0 << PLACE_SHIFT)
    }
}

impl Place {
    /// Packs a place into its (unlocked) location word and its check word.
    #[inline]
    pub const fn pack(self) -> (Location, u32) {
        match self {
            Self::None => (Location::NONE, 0),
            Self::Zero => (Location(KIND_ZERO), 0),
            Self::SameFilled { pattern } => {
                (Location(KIND_SAME | (pattern >> 32) << PATTERN_SHIFT), pattern as u32)
            }
            Self::Zram { handle, len, codec, checksum } => {
                (Location::zram(handle, len, codec), checksum.raw())
            }
            Self::File { slot, key, checksum } => (Location::file(slot, key), checksum.raw()),
        }
    }

    /// Unpacks the words that [`pack`](Self::pack) made; the LOCK bit is ignored. `None` for words
    /// that `pack` never makes (a table that was overwritten).
    #[inline]
    pub const fn unpack(location: Location, check: u32) -> Option<Self> {
        let word = location.unlocked().0;
        let place = match word & KIND_MASK {
            KIND_NONE => Self::None,
            KIND_ZERO => Self::Zero,
            KIND_SAME => Self::SameFilled { pattern: (word >> PATTERN_SHIFT) << 32 | check as u64 },
            KIND_ZRAM => Self::Zram {
                handle: Handle((word & HANDLE_MASK) >> PLACE_SHIFT),
                len: StoredLen((word >> LEN_SHIFT & LEN_MASK) as u16 + 1),
                codec: match Codec::from_raw((word >> CODEC_SHIFT) as u8) {
                    Some(codec) => codec,
                    None => return None,
                },
                checksum: Checksum::from_raw(check),
            },
            KIND_FILE => Self::File {
                slot: FileSlot(word >> PLACE_SHIFT),
                key: KeyNumber((word >> KEY_SHIFT & KEY_MASK) as u16),
                checksum: Checksum::from_raw(check),
            },
            _ => return None,
        };
        let (again, check_again) = place.pack();
        if again.0 == word && check_again == check { Some(place) } else { None }
    }
}

/// A location word in the caller's table, shared by faulting threads, evictors and the compactor.
///
/// A thread that *loads*, *frees* or *replaces* the bytes that a location names holds its LOCK bit
/// from before it uses the handle until it has finished with it. The compactor moves an object with
/// [`relocate_object`](Self::relocate_object), one compare-exchange that succeeds only while the
/// word names the old object and is not locked. Bytes therefore never move under a reader, and the
/// compactor never waits for one. A move does not change the check word beside it; only the holder
/// of the LOCK bit reads and writes that.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct LocationCell(AtomicU64);

impl LocationCell {
    /// A cell that holds `location`.
    pub const fn new(location: Location) -> Self {
        Self(AtomicU64::new(location.0))
    }

    /// The current word. It may change at any moment unless the caller holds the LOCK bit.
    #[inline]
    pub fn get(&self) -> Location {
        Location(self.0.load(Ordering::Acquire))
    }

    /// Takes the LOCK bit and returns the location that it pins; `None` when another thread holds
    /// the bit.
    #[inline]
    pub fn try_lock(&self) -> Option<Location> {
        let word = self.0.fetch_or(LOCK, Ordering::Acquire);
        if word & LOCK == 0 { Some(Location(word)) } else { None }
    }

    /// Writes `location` and releases the LOCK bit. The caller holds the bit.
    #[inline]
    pub fn unlock_with(&self, location: Location) {
        debug_assert!(self.0.load(Ordering::Relaxed) & LOCK != 0, "the caller holds the LOCK bit");
        self.0.store(location.unlocked().0, Ordering::Release);
    }

    /// Replaces `old` by `new` (both unlocked) if the word is exactly `old`; returns whether it
    /// was.
    #[inline]
    pub fn relocate(&self, old: Location, new: Location) -> bool {
        self.0
            .compare_exchange(old.unlocked().0, new.unlocked().0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Makes the word name `new` instead of `old`, a copy of the same object of the compressed
    /// store, if the word names `old` and is not locked; returns whether it did. The other fields
    /// of the word stay. For the compactor.
    #[inline]
    pub fn relocate_object(&self, old: Handle, new: Handle) -> bool {
        let word = self.get();
        // `relocate` takes a word without its LOCK bit, and fails where the bit is set.
        word.moved(old, new).is_some_and(|moved| self.relocate(word, moved))
    }
}

/// Packing and unpacking agree at both ends of every field, checked at compile time.
const _: () = {
    let lens = [StoredLen(1), StoredLen(1033), StoredLen(2048), StoredLen::UNCOMPRESSED];
    let handles =
        [Handle(0), Handle(0x55_5555_5555), Handle(0xaa_aaaa_aaaa), Handle((1 << Handle::BITS) - 1)];
    let codecs = [Codec::Lz4, Codec::Lz4Settled, Codec::Zstd, Codec::BaseDelta];
    let mut i = 0;
    while i < 4 {
        let checksum = Checksum::from_raw(u32::MAX);
        let (location, check) =
            Place::Zram { handle: handles[i], len: lens[i], codec: codecs[i], checksum }.pack();
        assert!(!location.is_locked() && check == u32::MAX);
        match Place::unpack(location.locked(), check) {
            Some(Place::Zram { handle, len, codec, checksum }) => {
                assert!(handle.0 == handles[i].0 && len.0 == lens[i].0 && checksum.raw() == u32::MAX);
                assert!(codec as u8 == codecs[i] as u8);
            }
            _ => panic!("not symmetrical"),
        }
        let moved = match location.moved(handles[i], handles[3 - i]) {
            Some(moved) => moved,
            None => panic!("it names the object"),
        };
        assert!(moved.0 == Location::zram(handles[3 - i], lens[i], codecs[i]).0);
        i += 1;
    }
};

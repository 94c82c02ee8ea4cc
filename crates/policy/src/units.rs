//! Units of managed memory, each defined once: page, piece, block; and a type for the address of
//! each, so that an address of one unit is not given for that of another, or for an index.
//!
//! Ranges of bytes stay plain numbers: what a program or the kernel names may begin and end
//! anywhere, also behind the last address. So do numbers of pages within a piece, which index
//! arrays of 16.

use core::ops::Range;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of a piece: the unit in which faults are served and pages leave.
pub const PIECE_PAGES: usize = 16;
/// Bytes of a piece: 64 KiB.
pub const PIECE: usize = PIECE_PAGES * PAGE;
/// Pages of a block: as many as one page table of the kernel holds.
pub const BLOCK_PAGES: usize = 512;
/// Bytes of a block: 2 MiB.
pub const BLOCK: usize = PAGE * BLOCK_PAGES;
/// User addresses have 48 bits on AArch64 and 47 elsewhere. (Wider ones are given out to programs
/// that ask for them alone.)
pub const ADDRESS_BITS: u32 = if cfg!(target_arch = "aarch64") { 48 } else { 47 };
/// The address behind the last one of a program.
pub const ADDRESS_END: usize = 1 << ADDRESS_BITS;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident, $bytes:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(usize);

        impl $name {
            /// The unit that contains this byte of memory.
            #[inline]
            pub const fn containing(address: usize) -> Self {
                $name(address & !($bytes - 1))
            }
            /// The address of its first byte.
            #[inline]
            pub const fn raw(self) -> usize {
                self.0
            }
            /// The address behind its last byte.
            #[inline]
            pub const fn end(self) -> usize {
                self.0 + $bytes
            }
            /// The unit that lies `count` units further up.
            #[inline]
            pub const fn plus(self, count: usize) -> Self {
                $name(self.0 + count * $bytes)
            }
            /// The unit that contains the byte before this one; for that at address 0, the last of
            /// the address space.
            #[inline]
            pub const fn before(self) -> Self {
                $name(self.0.wrapping_sub($bytes))
            }
            /// The number of units that lie before it in the address space.
            #[inline]
            pub const fn number(self) -> usize {
                self.0 / $bytes
            }
        }

        impl core::fmt::LowerHex for $name {
            fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::LowerHex::fmt(&self.0, to)
            }
        }
    };
}

address! {
    /// Address of a page: a multiple of [`PAGE`].
    PageAddr, PAGE
}
address! {
    /// Address of a piece: a multiple of [`PIECE`].
    PieceAddr, PIECE
}
address! {
    /// Address of a block: a multiple of [`BLOCK`].
    BlockAddr, BLOCK
}

macro_rules! lies_in_block {
    ($name:ident, $unit:literal) => {
        impl $name {
            #[doc = concat!("The block that contains the ", $unit, ".")]
            #[inline]
            pub const fn block(self) -> BlockAddr {
                BlockAddr::containing(self.0)
            }
            #[doc = concat!("The index in its block of the page with which the ", $unit, " begins.")]
            #[inline]
            pub const fn index(self) -> PageInBlock {
                PageInBlock::new(self.0 / PAGE % BLOCK_PAGES)
            }
        }

        impl From<$name> for BlockAddr {
            #[inline]
            fn from(unit: $name) -> Self {
                unit.block()
            }
        }
    };
}

lies_in_block!(PageAddr, "page");
lies_in_block!(PieceAddr, "piece");

impl PageAddr {
    /// The piece that contains the page.
    #[inline]
    pub const fn piece(self) -> PieceAddr {
        PieceAddr::containing(self.0)
    }
    /// The number of the page in its piece (0..16).
    #[inline]
    pub const fn in_piece(self) -> usize {
        self.0 / PAGE % PIECE_PAGES
    }
}

impl PieceAddr {
    /// Page `number` (0..16) of the piece; for 16, the page behind it.
    #[inline]
    pub const fn page(self, number: usize) -> PageAddr {
        PageAddr(self.0 + number * PAGE)
    }
}

impl BlockAddr {
    /// The page with this index in the block.
    #[inline]
    pub const fn page(self, index: PageInBlock) -> PageAddr {
        PageAddr(self.0 + index.get() * PAGE)
    }
    /// All pages of the block.
    #[inline]
    pub const fn pages(self) -> Range<PageAddr> {
        PageAddr(self.0)..PageAddr(self.end())
    }
    /// Piece `number` (0..32) of the block; for 32, the piece behind it.
    #[inline]
    pub const fn piece(self, number: usize) -> PieceAddr {
        PieceAddr(self.0 + number * PIECE)
    }
}

/// Index of a page in its block: 0..512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PageInBlock(u16);

impl PageInBlock {
    /// The first page.
    pub const FIRST: PageInBlock = PageInBlock(0);
    /// The last page.
    pub const LAST: PageInBlock = PageInBlock(BLOCK_PAGES as u16 - 1);

    /// The page with this index, which is less than [`BLOCK_PAGES`].
    #[inline]
    pub const fn new(index: usize) -> Self {
        debug_assert!(index < BLOCK_PAGES);
        PageInBlock(index as u16)
    }
    /// The index as a number.
    #[inline]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
    /// The page that lies `pages` pages behind this one, in the same block.
    #[inline]
    pub const fn plus(self, pages: usize) -> Self {
        Self::new(self.get() + pages)
    }
    /// The number of the page in its piece (0..16).
    #[inline]
    pub const fn in_piece(self) -> usize {
        self.get() % PIECE_PAGES
    }
    /// The number of its piece in the block (0..32).
    #[inline]
    pub const fn piece(self) -> usize {
        self.get() / PIECE_PAGES
    }
    /// The first page of its piece.
    #[inline]
    pub const fn piece_start(self) -> Self {
        PageInBlock(self.0 - self.0 % PIECE_PAGES as u16)
    }
    /// The pages of a block with these indices, which are at most [`BLOCK_PAGES`].
    #[inline]
    pub fn range(indices: Range<usize>) -> impl DoubleEndedIterator<Item = Self> + Clone {
        indices.map(Self::new)
    }
    /// All pages of a block.
    #[inline]
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
        Self::range(0..BLOCK_PAGES)
    }
}

#[cfg(test)]
mod tests;

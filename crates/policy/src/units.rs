//! Units of managed memory, each defined once: page, piece, block.

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
/// User addresses have 47 bits.
pub const ADDRESS_BITS: u32 = 47;

//! Units of managed memory: page (4 KiB), piece (64 KiB, 16 pages) and block (2 MiB, 512 pages);
//! each has an address type of its own.

pub use folioswap_policy::units::{
    ADDRESS_END, BLOCK, BLOCK_PAGES, BlockAddr, PAGE, PIECE, PIECE_PAGES, PageAddr, PageInBlock, PieceAddr,
};

/// Pages of a piece, one bit each.
pub type Pages = u16;

/// Order of a piece: the unit in which faults are served and pages leave.
pub(crate) const PIECE_ORDER: u8 = PIECE_PAGES.ilog2() as u8;
/// Order of a block: one of the kernel's huge pages.
pub(crate) const BLOCK_ORDER: u8 = BLOCK_PAGES.ilog2() as u8;

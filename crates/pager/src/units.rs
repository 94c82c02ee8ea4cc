//! Units of managed memory: page (4 KiB), piece (64 KiB, 16 pages) and block (2 MiB, 512 pages).

pub use folioswap_policy::units::{ADDRESS_BITS, BLOCK, BLOCK_PAGES, PAGE, PIECE, PIECE_PAGES};

/// Pages of a piece, one bit each.
pub type Pages = u16;

/// Order of a piece: the unit in which faults are served and pages leave.
pub(crate) const PIECE_ORDER: u8 = PIECE_PAGES.ilog2() as u8;
/// Order of a block: one of the kernel's huge pages.
pub(crate) const BLOCK_ORDER: u8 = BLOCK_PAGES.ilog2() as u8;

/// Index of an address's page in its block.
pub fn page_index(address: usize) -> usize {
    address / PAGE % BLOCK_PAGES
}

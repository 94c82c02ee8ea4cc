//! A piece on its way out: its berth in staging, and the outcome for each page.

use crate::staging::candidates::Candidates;
use crate::staging::ring::BerthIndex;
use crate::store::clean::Copies;
use crate::units::{PIECE_PAGES, Pages, PieceAddr};
use folioswap_policy::page::PageWord;
use folioswap_slots::SwapEntry;

/// A piece on its way to staging.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) piece: PieceAddr,
    /// The berth in staging that it goes to.
    pub(crate) berth: BerthIndex,
    pub(crate) wanted: Candidates,
    /// Swap entries of its pages, and the orders of the folios that they belong to.
    pub(crate) entries: [Option<SwapEntry>; PIECE_PAGES],
    pub(crate) orders: [u8; PIECE_PAGES],
    /// The pages that were claimed, and the words that they had before.
    pub(crate) marked: Pages,
    pub(crate) old: [PageWord; PIECE_PAGES],
    pub(crate) copies: Copies,
}

impl Default for Part {
    fn default() -> Self {
        Part {
            piece: PieceAddr::containing(0),
            berth: BerthIndex::new(0),
            wanted: Candidates::default(),
            entries: [None; PIECE_PAGES],
            orders: [0; PIECE_PAGES],
            marked: 0,
            old: [PageWord::PRESENT; PIECE_PAGES],
            copies: Copies::default(),
        }
    }
}

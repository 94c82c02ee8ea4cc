//! Pieces side by side that leave together.
//!
//! The cost of a move is for the most part the invalidation of other CPUs' TLBs (16 to 20 us, for
//! one page or for many): so pages without a gap between them leave by one move, over the borders
//! of pieces too. The row goes to as many berths of staging side by side. The pages of the row that
//! lie in a larger folio have one run of slots (`swap_out.rs`).
//!
//! A huge page leaves as a row of its own, and stays huge on the way (1 to 6 us; a move of a part
//! of it would take 260).

use crate::staging::candidates::Candidates;
use crate::units::{BLOCK, BlockAddr, PIECE, PIECE_PAGES, Pages, PieceAddr};

/// The most pieces of a row: 2 MiB, a huge page.
pub(crate) const ROW_PIECES: usize = BLOCK / PIECE;

/// The most pieces of a row of single pages: 512 KiB. Longer rows would gain little for the move,
/// and its lock is held meanwhile.
pub(crate) const JOINED_PIECES: usize = 8;

/// The same where folios of 1 MiB may leave.
pub(crate) const LONG_PIECES: usize = 16;

/// The most moves of a row whose pieces lie apart: events and faults wait for all of them, and each
/// move may wait for another processor.
const MOVES: u32 = 16;

/// The number of runs of pages side by side.
fn moves(wanted: Candidates) -> u32 {
    let pages = wanted.all();
    (pages & !(pages << 1)).count_ones()
}

/// The length of rows of single pages: a row ends at the next multiple of this length, and the next
/// row begins there. A row that ended at an unaligned address would shift every later row, so none
/// would match a folio of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// [`JOINED_PIECES`].
    Joined,
    /// [`LONG_PIECES`].
    Long,
}

impl Rows {
    fn pieces(self) -> usize {
        match self {
            Rows::Joined => JOINED_PIECES,
            Rows::Long => LONG_PIECES,
        }
    }

    /// The pages of one such row.
    pub(crate) fn pages(self) -> u64 {
        (self.pieces() * PIECE_PAGES) as u64
    }
}

/// Consecutive pieces, and the pages of each that may be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    start: PieceAddr,
    wanted: [Candidates; ROW_PIECES],
    pieces: usize,
}

impl Default for Row {
    /// The row without a piece.
    fn default() -> Self {
        Row { start: PieceAddr::containing(0), wanted: [Candidates::default(); ROW_PIECES], pieces: 0 }
    }
}

impl Row {
    /// A row of one piece.
    pub(crate) fn of(piece: PieceAddr, wanted: Candidates) -> Self {
        let mut row = Row { start: piece, pieces: 1, ..Row::default() };
        row.wanted[0] = wanted;
        row
    }

    /// A row of all of this block, of which no page is clean.
    pub(crate) fn huge_page(block: BlockAddr) -> Self {
        Row {
            start: block.piece(0),
            wanted: [Candidates { written: Pages::MAX, clean: 0 }; ROW_PIECES],
            pieces: ROW_PIECES,
        }
    }

    /// Whether the row is a huge page, whose 2 MiB have to stay together.
    pub(crate) fn is_huge_page(&self) -> bool {
        self.pieces == ROW_PIECES
    }

    /// Whether the row may become longer.
    pub(crate) fn is_open(&self, rows: Rows) -> bool {
        let end = self.start.number() + self.pieces;
        self.pieces > 0 && !end.is_multiple_of(rows.pieces())
    }

    /// Adds the piece, if it comes next. The row goes on where one move can take pages of both the
    /// last piece and this one, which spares a move. Elsewhere it goes on as long as no more than
    /// [`MOVES`] moves are due, because the checks and locks of a row are paid once. Long rows are
    /// for folios that leave unsplit, and go on only where a move does. False: the piece begins a
    /// row of its own.
    pub(crate) fn append(&mut self, piece: PieceAddr, wanted: Candidates, rows: Rows) -> bool {
        const LAST: Pages = 1 << (PIECE_PAGES - 1);
        let is_next = self.is_open(rows) && piece == self.start.plus(self.pieces);
        let goes_on = is_next
            && (self.wanted[self.pieces - 1].all() & LAST != 0 && wanted.all() & 1 != 0
                || rows == Rows::Joined && self.moves() + moves(wanted) <= MOVES);
        if goes_on {
            self.wanted[self.pieces] = wanted;
            self.pieces += 1;
        }
        goes_on
    }

    /// Takes up to `most` pieces (one at least) away from the front of the row; `None` when the row
    /// is empty.
    pub(crate) fn take(&mut self, most: usize) -> Option<Row> {
        let taken = self.pieces.min(most.max(1));
        if taken == 0 {
            return None;
        }
        let front = Row { pieces: taken, ..*self };
        self.start = self.start.plus(taken);
        self.wanted.copy_within(taken.., 0);
        self.pieces -= taken;
        Some(front)
    }

    /// The row with the pieces of `rest` behind its own: what [`Row::take`] took away from it, or
    /// nothing.
    pub(crate) fn followed_by(mut self, rest: &Row) -> Row {
        debug_assert!(rest.is_empty() || rest.start == self.start.plus(self.pieces));
        let all = self.pieces + rest.pieces;
        self.wanted[self.pieces..all].copy_from_slice(&rest.wanted[..rest.pieces]);
        self.pieces = all;
        self
    }

    /// Whether the row has no piece.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// The same row with no more of each piece than the pages that `of` gives for its number.
    pub(crate) fn among(mut self, of: impl Fn(usize) -> Pages) -> Row {
        self.wanted.iter_mut().enumerate().for_each(|(number, wanted)| *wanted = wanted.among(of(number)));
        self
    }

    /// The first piece.
    pub(crate) fn start(&self) -> PieceAddr {
        self.start
    }

    /// The number of pages that may be taken.
    pub(crate) fn pages(&self) -> u64 {
        self.pieces().map(|(_, wanted)| u64::from(wanted.all().count_ones())).sum()
    }

    /// The most moves that the row takes: a move that reaches from one piece into the next counts
    /// twice.
    pub(crate) fn moves(&self) -> u32 {
        self.pieces().map(|(_, wanted)| moves(wanted)).sum()
    }

    /// The pieces, with their addresses.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (PieceAddr, Candidates)> + '_ {
        let wanted = self.wanted[..self.pieces].iter().enumerate();
        wanted.map(|(number, wanted)| (self.start.plus(number), *wanted))
    }
}

#[cfg(test)]
mod tests;

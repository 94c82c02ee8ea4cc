//! Pieces side by side that leave together.
//!
//! What a move costs is for the most part the invalidation of other CPUs' TLBs (16 to 20 us, be it for one page or for many): so pages
//! without a gap between them leave by one move, over the borders of pieces too. The row goes to as many places of staging side by side.
//! What of it lies in a larger folio has one run of slots (`swap_out.rs`).
//!
//! What the kernel maps by one huge page leaves as a row of its own, and stays huge on the way (1 to 6 us; a part of it would be 260).

use crate::staging::candidates::Candidates;
use crate::units::{BLOCK, PIECE, PIECE_PAGES, Pages};

/// Most pieces of a row: 2 MiB, one of the kernel's huge pages.
pub(crate) const ROW_PIECES: usize = BLOCK / PIECE;

/// Most pieces of a row of single pages: 512 KiB. Longer ones would gain little for the move, and its lock is held meanwhile.
pub(crate) const JOINED_PIECES: usize = 8;

/// The same where folios of 1 MiB may leave.
pub(crate) const LONG_PIECES: usize = 16;

/// Moves of a row whose pieces lie apart: events and faults wait for all of them, and each may wait for another processor.
const MOVES: u32 = 16;

/// Runs of pages side by side.
fn moves(wanted: Candidates) -> u32 {
    let pages = wanted.all();
    (pages & !(pages << 1)).count_ones()
}

/// How long rows of single pages become: to the next multiple of this length. Where one ends the next begins: of rows that ended elsewhere all
/// would lie across the borders of the folios that are as long as they.
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

    /// Pages of one.
    pub(crate) fn pages(self) -> u64 {
        (self.pieces() * PIECE_PAGES) as u64
    }
}

/// Consecutive pieces, and which of their pages may be taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    start: usize,
    wanted: [Candidates; ROW_PIECES],
    pieces: usize,
}

impl Row {
    /// One piece.
    pub(crate) fn of(piece: usize, wanted: Candidates) -> Self {
        let mut row = Row { start: piece, pieces: 1, ..Row::default() };
        row.wanted[0] = wanted;
        row
    }

    /// All of the 2 MiB from `block` on, of which nothing is clean.
    pub(crate) fn huge_page(block: usize) -> Self {
        Row {
            start: block,
            wanted: [Candidates { written: Pages::MAX, clean: 0 }; ROW_PIECES],
            pieces: ROW_PIECES,
        }
    }

    /// Is it 2 MiB, which have to stay together?
    pub(crate) fn is_huge_page(&self) -> bool {
        self.pieces == ROW_PIECES
    }

    /// May it become longer?
    pub(crate) fn is_open(&self, rows: Rows) -> bool {
        let end = self.start / PIECE + self.pieces;
        self.pieces > 0 && !end.is_multiple_of(rows.pieces())
    }

    /// Adds the piece, if it comes next: where one move can take pages of it together with some of the last piece that spares a move, and
    /// elsewhere, as long as no more than [`MOVES`] are due, what is asked and done once for a row. Long rows are for folios that leave whole, and go
    /// on only where a move does. False: it begins a row of its own.
    pub(crate) fn append(&mut self, piece: usize, wanted: Candidates, rows: Rows) -> bool {
        const LAST: Pages = 1 << (PIECE_PAGES - 1);
        let is_next = self.is_open(rows) && piece == self.start + self.pieces * PIECE;
        let goes_on = is_next
            && (self.wanted[self.pieces - 1].all() & LAST != 0 && wanted.all() & 1 != 0
                || rows == Rows::Joined && self.moves() + moves(wanted) <= MOVES);
        if goes_on {
            self.wanted[self.pieces] = wanted;
            self.pieces += 1;
        }
        goes_on
    }

    /// Takes up to `most` pieces away from its front (one at least); `None` when it is empty.
    pub(crate) fn take(&mut self, most: usize) -> Option<Row> {
        let taken = self.pieces.min(most.max(1));
        if taken == 0 {
            return None;
        }
        let front = Row { pieces: taken, ..*self };
        self.start += taken * PIECE;
        self.wanted.copy_within(taken.., 0);
        self.pieces -= taken;
        Some(front)
    }

    /// No piece?
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// The same with no more of each piece than the pages that `of` says, by number.
    pub(crate) fn among(mut self, of: impl Fn(usize) -> Pages) -> Row {
        self.wanted.iter_mut().enumerate().for_each(|(number, wanted)| *wanted = wanted.among(of(number)));
        self
    }

    /// Address of the first piece.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Pages that may be taken.
    pub(crate) fn pages(&self) -> u64 {
        self.pieces().map(|(_, wanted)| u64::from(wanted.all().count_ones())).sum()
    }

    /// Moves that it takes, at most: those that reach from one piece into the next count twice.
    pub(crate) fn moves(&self) -> u32 {
        self.pieces().map(|(_, wanted)| moves(wanted)).sum()
    }

    /// The pieces, with their addresses.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, Candidates)> + '_ {
        let wanted = self.wanted[..self.pieces].iter().enumerate();
        wanted.map(|(number, wanted)| (self.start + number * PIECE, *wanted))
    }
}

#[cfg(test)]
mod tests;

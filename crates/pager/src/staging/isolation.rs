//! What became of the pages of a piece that were to be taken out.

use crate::staging::row_pages::RowPages;
use crate::units::{PIECE_PAGES, Pages};

/// What became of the pages of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// In staging now.
    pub moved: Pages,
    /// Moves that were tried; of a row, all with its first piece.
    pub moves: u64,
    /// Shared after a fork, or pinned for I/O: the kernel does not move them.
    pub busy: Pages,
    /// Their mapping cannot be moved from (locked, read-only, changed protection).
    pub unmovable: Pages,
    /// Something stood in the place of a page that is still in the program.
    pub residue: Pages,
    /// Why something was not tried, if so.
    pub refused: Option<Refused>,
}

impl Isolation {
    /// Pages that its place in staging holds now.
    pub(crate) fn holds(&self) -> Pages {
        self.moved | self.residue
    }

    /// Its part of the moves of a row, of which it is piece number `number`.
    pub(crate) fn note(&mut self, moves: &Moves, number: usize) {
        self.moved = moves.moved.of_piece(number);
        self.moves = if number == 0 { moves.tries } else { 0 };
        (self.busy, self.unmovable) = (moves.busy.of_piece(number), moves.unmovable.of_piece(number));
        self.residue = moves.residue.of_piece(number);
        let ended_here = moves.refused.filter(|(page, _)| page / PIECE_PAGES == number);
        self.refused = ended_here.map(|(_, why)| why).or(self.refused);
    }
}

/// Why a piece was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// An event waits to be read: let the handler run, then try again.
    EventPending,
    /// No slots, or no memory for their tables.
    NoSlots,
    /// The staging area is full: write back first.
    StagingFull,
    /// The piece is no longer registered.
    Gone,
}

/// What became of the pages of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub(crate) moved: RowPages,
    /// Moves that were tried.
    pub(crate) tries: u64,
    pub(crate) busy: RowPages,
    pub(crate) unmovable: RowPages,
    pub(crate) residue: RowPages,
    /// At which page they ended, and why, if it was before the last.
    pub(crate) refused: Option<(usize, Refused)>,
}

impl Moves {
    pub(crate) const NONE: Moves = Moves {
        moved: RowPages::NONE,
        tries: 0,
        busy: RowPages::NONE,
        unmovable: RowPages::NONE,
        residue: RowPages::NONE,
        refused: None,
    };
}

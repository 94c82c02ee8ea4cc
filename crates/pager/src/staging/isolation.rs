//! The outcome for the pages of a piece that were to be taken out.

use crate::staging::row_pages::RowPages;
use crate::units::{PIECE_PAGES, Pages};

/// The outcome for the pages of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// Pages that are in staging now.
    pub moved: Pages,
    /// Moves that were tried. The first piece of a row carries the moves of the whole row.
    pub moves: u64,
    /// Pages that the kernel does not move, because they are shared after a fork or pinned for I/O.
    pub busy: Pages,
    /// Pages whose mapping refuses moves (locked, read-only, protection changed).
    pub unmovable: Pages,
    /// Pages that are still in the program while something occupies their page in the berth.
    pub residue: Pages,
    /// The reason why some page was not tried, if there is one.
    pub refused: Option<Refused>,
}

impl Isolation {
    /// Pages that the piece's berth holds now.
    pub(crate) fn holds(&self) -> Pages {
        self.moved | self.residue
    }

    /// Records the part of a row's moves that concerns this piece, which is number `number` of the
    /// row.
    pub(crate) fn note(&mut self, moves: &Moves, number: usize) {
        self.moved = moves.moved.of_piece(number);
        self.moves = if number == 0 { moves.tries } else { 0 };
        (self.busy, self.unmovable) = (moves.busy.of_piece(number), moves.unmovable.of_piece(number));
        self.residue = moves.residue.of_piece(number);
        let ended_here = moves.refused.filter(|(page, _)| page / PIECE_PAGES == number);
        self.refused = ended_here.map(|(_, why)| why).or(self.refused);
    }
}

/// The reason why a piece was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// An event waits to be read: the caller lets the handler run, then tries again.
    EventPending,
    /// The swap space has no free slots, or no memory for their tables.
    NoSlots,
    /// The staging ring is full: the caller writes back first.
    StagingFull,
    /// The piece is no longer registered.
    Gone,
}

/// The outcome for the pages of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub(crate) moved: RowPages,
    /// Moves that were tried.
    pub(crate) tries: u64,
    pub(crate) busy: RowPages,
    pub(crate) unmovable: RowPages,
    pub(crate) residue: RowPages,
    /// The page at which the moves ended and the reason, if they ended before the last page.
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

//! A set of the pages of a row, one bit each, up to 2 MiB.

use crate::staging::row::ROW_PIECES;
use crate::units::{PIECE_PAGES, Pages};

/// The pages of the longest row.
pub(crate) const ROW_PAGES: usize = ROW_PIECES * PIECE_PAGES;

/// A set of pages of a row, piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPages([Pages; ROW_PIECES]);

impl RowPages {
    /// The empty set.
    pub(crate) const NONE: RowPages = RowPages([0; ROW_PIECES]);

    /// The pages of the set in piece number `piece`.
    pub(crate) fn of_piece(&self, piece: usize) -> Pages {
        self.0[piece]
    }
    /// Sets the pages of piece number `piece` to `pages`.
    pub(crate) fn set_piece(&mut self, piece: usize, pages: Pages) {
        self.0[piece] = pages;
    }
    /// Adds `count` pages from page `first` on.
    pub(crate) fn add(&mut self, first: usize, count: usize) {
        for page in first..first + count {
            self.0[page / PIECE_PAGES] |= 1 << (page % PIECE_PAGES);
        }
    }
    /// Takes pages `first..end` out of the set.
    pub(crate) fn remove(&mut self, first: usize, end: usize) {
        for page in first..end.min(ROW_PAGES) {
            self.0[page / PIECE_PAGES] &= !(1 << (page % PIECE_PAGES));
        }
    }
    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&pages| pages == 0)
    }
    /// The number of pages of the set that lie side by side from page `first` on, at most `most`.
    pub(crate) fn run(&self, first: usize, most: usize) -> usize {
        let mut run = 0;
        while run < most && first + run < ROW_PAGES {
            let (piece, page) = ((first + run) / PIECE_PAGES, (first + run) % PIECE_PAGES);
            let here = (self.0[piece] >> page).trailing_ones() as usize;
            run += here;
            if here < PIECE_PAGES - page {
                break;
            }
        }
        run.min(most)
    }
}

#[cfg(test)]
mod tests;

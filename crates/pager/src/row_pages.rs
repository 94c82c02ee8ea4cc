//! A set of the pages of a row: one bit each, up to 2 MiB.

use crate::isolate::Pages;
use crate::row::ROW_PIECES;
use crate::staging::FOLIO_PAGES;

/// Pages of the longest row.
pub(crate) const ROW_PAGES: usize = ROW_PIECES * FOLIO_PAGES;

/// Pages of a row, piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPages([Pages; ROW_PIECES]);

impl RowPages {
    /// None of them.
    pub(crate) const NONE: RowPages = RowPages([0; ROW_PIECES]);

    /// Those of piece number `piece`.
    pub(crate) fn of_piece(&self, piece: usize) -> Pages {
        self.0[piece]
    }
    /// Those of piece number `piece` are now `pages`.
    pub(crate) fn set_piece(&mut self, piece: usize, pages: Pages) {
        self.0[piece] = pages;
    }
    /// Adds `count` pages from page `first` on.
    pub(crate) fn add(&mut self, first: usize, count: usize) {
        for page in first..first + count {
            self.0[page / FOLIO_PAGES] |= 1 << (page % FOLIO_PAGES);
        }
    }
    /// Are there none?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&pages| pages == 0)
    }
    /// How many pages of it lie side by side from page `first` on, `most` at most.
    pub(crate) fn run(&self, first: usize, most: usize) -> usize {
        let mut run = 0;
        while run < most && first + run < ROW_PAGES {
            let (piece, page) = ((first + run) / FOLIO_PAGES, (first + run) % FOLIO_PAGES);
            let here = (self.0[piece] >> page).trailing_ones() as usize;
            run += here;
            if here < FOLIO_PAGES - page {
                break;
            }
        }
        run.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_reach_over_pieces_and_end_at_gaps() {
        let mut pages = RowPages::NONE;
        assert!(pages.is_empty());
        pages.add(14, 20);
        pages.add(40, 1);
        pages.add(ROW_PAGES - 3, 3);
        let runs = [(0, 0), (14, 20), (15, 19), (16, 18), (33, 1), (34, 0), (40, 1), (ROW_PAGES - 3, 3)];
        for (first, run) in runs {
            assert_eq!(pages.run(first, ROW_PAGES), run, "{first}");
        }
        assert_eq!(pages.run(14, 5), 5);
        assert_eq!([pages.of_piece(0), pages.of_piece(1), pages.of_piece(2)], [0xc000, 0xffff, 0x0103]);
        pages.set_piece(1, 0);
        assert_eq!(pages.run(14, ROW_PAGES), 2);
    }
}

//! Which pages of a piece may be taken.

use crate::units::Pages;

/// Pages of a piece that may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Those that have to be written.
    pub written: Pages,
    /// Those whose word says that a stored copy still stands for them.
    pub clean: Pages,
}

impl Candidates {
    /// Both.
    pub fn all(self) -> Pages {
        self.written | self.clean
    }

    /// Those that are also among `pages`.
    pub fn among(self, pages: Pages) -> Self {
        Candidates { written: self.written & pages, clean: self.clean & pages }
    }
}

//! The pages of a piece that may be taken out.

use crate::units::Pages;

/// The pages of a piece that may be taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// The pages that have to be written.
    pub written: Pages,
    /// The pages whose word says that a stored copy still stands for them.
    pub clean: Pages,
}

impl Candidates {
    /// The pages of both kinds.
    pub fn all(self) -> Pages {
        self.written | self.clean
    }

    /// The candidates that are also among `pages`.
    pub fn among(self, pages: Pages) -> Self {
        Candidates { written: self.written & pages, clean: self.clean & pages }
    }
}

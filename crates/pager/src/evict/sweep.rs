//! For tests: everything that may leave leaves at once, whatever the limit, again and again.

use crate::engine::advices::{Advice, Advised, Visit};
use crate::evict::evictor::Evictor;
use crate::evict::page_out::Step;
use crate::staging::batch::Batch;
use crate::units::ADDRESS_END;

/// The rest between two sweeps, so that the program comes forward.
pub(crate) const REST_NS: u64 = 200_000;

/// How far a sweep has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// All has been looked at.
    Done,
    /// There is more.
    GoesOn,
}

impl Evictor {
    /// Takes the next part of all that is managed out of the program. The caller holds the gate,
    /// and staging is ready.
    pub(crate) fn sweep(&mut self) -> (Batch, Sweep) {
        let mut batch = Batch::default();
        let everything = Advised {
            place: 0,
            advice: Advice::PageOut,
            visit: Visit::Later,
            start: self.upkeep.sweep_at,
            end: ADDRESS_END,
        };
        let sweep = match self.page_out(everything, &mut batch) {
            Step::Until(at) if at < ADDRESS_END => {
                self.upkeep.sweep_at = at;
                Sweep::GoesOn
            }
            _ => {
                self.upkeep.sweep_at = 0;
                Sweep::Done
            }
        };
        (batch, sweep)
    }
}

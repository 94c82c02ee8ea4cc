//! The heat of a page that comes back.

use crate::fault::handler::Handler;
use folioswap_policy::page::{Heat, PageState};
use folioswap_policy::reclaim::workingset::Refault;

impl Handler {
    /// How warm a page is that comes back; `heat` is what the way of its return says. What was away for longer than the working set's
    /// size is as cold as what was never touched before: the next touch, in staging, may prove it hot. (What comes back in order, as a
    /// scan does, stays cold however soon that is: a loop over a little more than fits would make all of it hot, and nothing is gained.)
    pub(crate) fn heat_of(&mut self, from: PageState, heat: Heat) -> Heat {
        match from {
            // What waited in staging was wanted soon after.
            PageState::Leaving(_) => Heat::Hot,
            PageState::Stored(entry) => {
                let refault = self.engine.refault(entry);
                self.swapin.refaults.add(refault);
                if refault == Refault::Far { Heat::Cold } else { heat }
            }
            _ => heat,
        }
    }
}

#[cfg(test)]
mod tests;

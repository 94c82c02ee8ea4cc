//! The heat of a page that comes back.

use crate::fault::handler::Handler;
use folioswap_policy::page::{Heat, PageState};
use folioswap_policy::reclaim::workingset::Refault;

impl Handler {
    /// The heat of a page that comes back; `heat` is the one that the way of its return suggests. A
    /// page that was away for longer than the size of the working set is as cold as a page that was
    /// never touched before: its next touch, in staging, may prove it hot. (Pages that come back in
    /// order, as in a scan, stay cold however soon they come: a loop over slightly more memory than
    /// fits would make all of it hot, and nothing would be gained.)
    pub(crate) fn heat_of(&mut self, from: PageState, heat: Heat) -> Heat {
        match from {
            // A page that waited in staging was wanted soon after it left.
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

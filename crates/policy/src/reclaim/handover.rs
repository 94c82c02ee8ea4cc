//! A plan that changes hands: the evictor plans which pages are to leave, and the thread on whose processor they are used moves them.
//!
//! One word says whose the plan is, and with it everything that a move needs (the ring of staging). Pure transitions; the owner of the word
//! exchanges it, with acquire and release.
//!
//! | word | whose | next |
//! |---|---|---|
//! | kept | the evictor's | [`Handover::offer`] |
//! | offered | nobody's | [`Handover::take`], [`Handover::decline`], [`Handover::withdraw`] |
//! | taken | the taker's | [`Handover::put_down`] |
//! | returned | the evictor's | [`Handover::withdraw`] |

/// Whose the plan is. Zero: the evictor's, who has offered none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// The evictor's: nothing is offered.
    #[default]
    Kept,
    /// Whoever comes first may have it.
    Offered,
    /// The taker's, for a moment.
    Taken,
    /// The evictor's again, done or not.
    Returned,
}

/// Whether a plan that is put down has anything left for its taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It will be taken again.
    Some,
    /// Nothing, or nothing that the taker could do.
    None,
}

impl Handover {
    /// As it was kept; anything else than [`Handover::bits`] gave is taken for [`Handover::Kept`].
    pub const fn from_bits(bits: u32) -> Self {
        match bits {
            1 => Handover::Offered,
            2 => Handover::Taken,
            3 => Handover::Returned,
            _ => Handover::Kept,
        }
    }

    /// The plain number.
    pub const fn bits(self) -> u32 {
        self as u32
    }

    /// The evictor offers a plan.
    pub const fn offer(self) -> Option<Self> {
        match self {
            Handover::Kept => Some(Handover::Offered),
            _ => None,
        }
    }

    /// The plan is the caller's until it puts it down. `None`: there is none to be had.
    pub const fn take(self) -> Option<Self> {
        match self {
            Handover::Offered => Some(Handover::Taken),
            _ => None,
        }
    }

    /// Who took the plan puts it down.
    pub const fn put_down(self, rest: Rest) -> Option<Self> {
        match (self, rest) {
            (Handover::Taken, Rest::Some) => Some(Handover::Offered),
            (Handover::Taken, Rest::None) => Some(Handover::Returned),
            _ => None,
        }
    }

    /// Who might take the plan will not.
    pub const fn decline(self) -> Option<Self> {
        match self {
            Handover::Offered => Some(Handover::Returned),
            _ => None,
        }
    }

    /// The plan is the evictor's. `None`: somebody has it, and puts it down in a moment.
    pub const fn withdraw(self) -> Option<Self> {
        match self {
            Handover::Taken => None,
            _ => Some(Handover::Kept),
        }
    }
}

#[cfg(test)]
mod tests;

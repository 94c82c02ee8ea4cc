//! A plan that changes hands: the evictor plans which pages are to leave, and the thread on whose
//! CPU they are used moves them.
//!
//! One word says which thread owns the plan, and with it everything that a move needs (the ring of
//! staging). The transitions are pure; the owner of the word exchanges it, with acquire and
//! release.
//!
//! | word | owner | next |
//! |---|---|---|
//! | kept | the evictor | [`Handover::offer`] |
//! | offered | none | [`Handover::take`], [`Handover::decline`], [`Handover::withdraw`] |
//! | taken | the taker | [`Handover::put_down`] |
//! | returned | the evictor | [`Handover::withdraw`] |

/// The owner of the plan. Zero: the evictor, which has offered none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// The evictor owns the plan: nothing is offered.
    #[default]
    Kept,
    /// The plan is offered: the first thread to come may have it.
    Offered,
    /// The taker owns the plan, for a moment.
    Taken,
    /// The evictor owns the plan again, done or not.
    Returned,
}

/// Whether a plan that is put down has anything left for its taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Something is left: the plan will be taken again.
    Some,
    /// Nothing is left, or nothing that the taker could do.
    None,
}

impl Handover {
    /// Makes the word from the number that [`Handover::bits`] gave; any other number is taken for
    /// [`Handover::Kept`].
    pub const fn from_bits(bits: u32) -> Self {
        match bits {
            1 => Handover::Offered,
            2 => Handover::Taken,
            3 => Handover::Returned,
            _ => Handover::Kept,
        }
    }

    /// Returns the word as a plain number.
    pub const fn bits(self) -> u32 {
        self as u32
    }

    /// Offers a plan. Called by the evictor.
    pub const fn offer(self) -> Option<Self> {
        match self {
            Handover::Kept => Some(Handover::Offered),
            _ => None,
        }
    }

    /// Takes the plan; the caller owns it until it puts it down. Returns `None` when none is
    /// offered.
    pub const fn take(self) -> Option<Self> {
        match self {
            Handover::Offered => Some(Handover::Taken),
            _ => None,
        }
    }

    /// Puts the plan down. Called by the taker.
    pub const fn put_down(self, rest: Rest) -> Option<Self> {
        match (self, rest) {
            (Handover::Taken, Rest::Some) => Some(Handover::Offered),
            (Handover::Taken, Rest::None) => Some(Handover::Returned),
            _ => None,
        }
    }

    /// Declines the plan. Called by a thread that might take it and will not.
    pub const fn decline(self) -> Option<Self> {
        match self {
            Handover::Offered => Some(Handover::Returned),
            _ => None,
        }
    }

    /// Withdraws the plan: the evictor owns it. Returns `None` while a taker has it; the taker puts
    /// it down in a moment.
    pub const fn withdraw(self) -> Option<Self> {
        match self {
            Handover::Taken => None,
            _ => Some(Handover::Kept),
        }
    }
}

#[cfg(test)]
mod tests;

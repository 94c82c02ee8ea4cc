//! Whose turn it is to give: a member gives no more than its share of what its group gives.
//!
//! A batch is as large whatever the share, and several members make batches at the same time. So a
//! member that has given more than its share of what all gave leaves the next batches to the
//! others, for as long as they give. (What a group can give in a second is then bounded by the
//! member that owes the most: the price of a weight.)

use crate::units::PAGE;

/// How far a member may be ahead of its share, in bytes: two batches.
const SLACK: i64 = 1 << 20;

/// What is remembered of a lead, or of a debt, in bytes. What was given long ago, under other
/// weights, soon stops to count.
const MEMORY: i64 = 4 * SLACK;

/// The others have this long to give something; then whoever has a share may give. A member whose
/// turn it is not looks again after it.
pub const PATIENCE_NS: u64 = 2_000_000;

/// Pages given so far: by one member, and by all members of its group together with it. Either may
/// go back, when a member ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Pages given by the member.
    pub own: u64,
    /// Pages given by all members of the group.
    pub all: u64,
}

/// The part that a member has in a group's excess: see [`own_share`](super::shares::own_share).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Bytes that this member should give.
    pub own: u64,
    /// Bytes that all members together should give.
    pub all: u64,
}

/// How far one member is ahead of its share in one of its groups.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// What had been given at the last look.
    seen: Option<Given>,
    /// Bytes given beyond the share; negative: bytes that it owes.
    ahead: i64,
    /// When another member was last seen to have given something.
    others_gave_ns: u64,
}

impl Turn {
    /// Creates the state of a member that has given nothing.
    pub const fn new() -> Self {
        Turn { seen: None, ahead: 0, others_gave_ns: 0 }
    }

    /// Looks at what was given since the last look, and returns whether this member may give a
    /// batch now. Cost: three divisions.
    ///
    /// It may not while it is further ahead of its share than two batches, unless the others have
    /// not given anything for a while. So somebody may give at any time: the members are ahead by
    /// zero bytes in sum, and one of them is not ahead.
    pub fn comes(&mut self, given: Given, share: Share, now_ns: u64) -> bool {
        let seen = self.seen.replace(given).unwrap_or(given);
        // Where a member has ended, nobody knows what the others gave meanwhile.
        if let (Some(own), Some(all)) = (given.own.checked_sub(seen.own), given.all.checked_sub(seen.all)) {
            self.note(own, all.max(own), share);
            if all > own {
                self.others_gave_ns = now_ns;
            }
        }
        self.ahead <= SLACK || now_ns.saturating_sub(self.others_gave_ns) > PATIENCE_NS
    }

    /// Notes what this member has given, and what all have.
    fn note(&mut self, own: u64, all: u64, share: Share) {
        let bytes = |pages: u64| u128::from(pages) * PAGE as u128;
        let (part, sum) = (u128::from(share.own.min(share.all)), u128::from(share.all.max(1)));
        // In bytes, so that what the divisions leave over is nothing even in a million looks; the
        // quotient first, so that no product overflows.
        let due = bytes(all) / sum * part + bytes(all) % sum * part / sum;
        let more = (bytes(own) as i128 - due as i128).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let ahead = self.ahead.saturating_add(more);
        self.ahead = ahead.clamp(-MEMORY, MEMORY);
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;

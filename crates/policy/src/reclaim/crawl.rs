//! The decision that a group only crawls: it stays at its limit although faults are served, since
//! what cannot leave memory takes nearly all of the limit, or the stored pages take half of it.
//! Such a group loses the very pages that it needs for the next step, and each fault waits.
//!
//! Members decide by it, and the supervisor sees for itself before it believes them.

use crate::reclaim::watermarks::Watermarks;

/// How long a look that found something to take is overlooked. A member that has found nothing to
/// take counts all that it has as memory that could leave when it tries anew.
const OVERLOOKED_NS: u64 = 1_000_000_000;

/// A group that serves more faults than so many a second goes on, whatever cannot leave: one that
/// has lost hope serves some fifty, since each of them waits.
const FAULTS_A_SECOND: u64 = 250;

/// After a longer pause between two looks nobody knows what was meanwhile: the group was frozen, or
/// the observer did not run.
const PAUSE_NS: u64 = 1_000_000_000;

/// How long a group may crawl before it counts as hopeless, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Where stored pages take more than half of the limit.
    pub stored_ns: u64,
    /// Where what cannot leave takes nearly all of it.
    pub unswappable_ns: u64,
}

impl Patience {
    /// That of a member, which then reports it.
    pub const MEMBER: Patience = Patience { stored_ns: 10_000_000_000, unswappable_ns: 8_000_000_000 };
    /// That of the supervisor, whose looks begin at another moment.
    pub const SUPERVISOR: Patience = Patience { stored_ns: 8_000_000_000, unswappable_ns: 6_000_000_000 };
}

/// How full a group is at one look, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// It is below its limit.
    Below,
    /// It is at its limit.
    Full,
    /// It is at its limit, and what cannot leave memory takes so much of it that reclaim cannot
    /// come to its end.
    FullOfUnswappable,
    /// It is at its limit, and stored pages take more than half of that.
    FullOfStored,
}

impl Fill {
    /// Of a group that is charged `charge` bytes, of which its members could take out `swappable`,
    /// and stored pages take `stored`.
    pub fn of(limit: u64, charge: u64, swappable: u64, stored: u64) -> Self {
        if charge < limit {
            Fill::Below
        } else if stored > limit / 2 {
            Fill::FullOfStored
        } else if charge.saturating_sub(swappable) >= Watermarks::of(limit).low {
            Fill::FullOfUnswappable
        } else {
            Fill::Full
        }
    }
}

/// For how long a group has been full of what cannot leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crawl {
    /// The first look that found it full of stored pages, since one that did not.
    stored_since_ns: Option<u64>,
    /// The first look that found it full of what cannot leave, since it was below its limit, or
    /// could give something for longer than a moment.
    unswappable_since_ns: Option<u64>,
    /// The last such look.
    unswappable_at_ns: u64,
    /// Faults that the group had served at the first of them.
    served_before: u64,
    /// Faults that it had served at the last look.
    served: u64,
    /// The last look.
    looked_ns: u64,
}

impl Crawl {
    /// Creates the state before the first look.
    pub const fn new() -> Self {
        Crawl {
            stored_since_ns: None,
            unswappable_since_ns: None,
            unswappable_at_ns: 0,
            served_before: 0,
            served: 0,
            looked_ns: 0,
        }
    }

    /// Notes a look at a group that has served so many faults.
    pub fn look(&mut self, fill: Fill, served: u64, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) > PAUSE_NS {
            *self = Crawl::new();
        }
        (self.served, self.looked_ns) = (served, now_ns);
        match fill {
            Fill::Below => *self = Crawl::new(),
            Fill::FullOfStored => {
                self.stored_since_ns.get_or_insert(now_ns);
            }
            Fill::Full | Fill::FullOfUnswappable => self.stored_since_ns = None,
        }
        match fill {
            Fill::FullOfUnswappable => {
                if self.unswappable_since_ns.is_none() {
                    (self.unswappable_since_ns, self.served_before) = (Some(now_ns), served);
                }
                self.unswappable_at_ns = now_ns;
            }
            // Stored pages have a patience of their own; nothing can be given meanwhile either.
            Fill::FullOfStored => self.unswappable_at_ns = now_ns,
            Fill::Full if now_ns.saturating_sub(self.unswappable_at_ns) > OVERLOOKED_NS => {
                self.unswappable_since_ns = None;
            }
            Fill::Full | Fill::Below => {}
        }
    }

    /// Whether it has lasted for so long at this time.
    pub fn exceeds(&self, patience: Patience, now_ns: u64) -> bool {
        let lasts = |since: Option<u64>, least| since.is_some_and(|since| now_ns >= since + least);
        let served = self.served.saturating_sub(self.served_before);
        let hardly_serves = |since: u64| served <= (now_ns - since) / 1_000_000 * FAULTS_A_SECOND / 1000;
        lasts(self.stored_since_ns, patience.stored_ns)
            || lasts(self.unswappable_since_ns, patience.unswappable_ns)
                && self.unswappable_since_ns.is_some_and(hardly_serves)
    }
}

#[cfg(test)]
mod tests;

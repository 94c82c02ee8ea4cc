//! How much a process should give up, and whether somebody waits for it.

use crate::evict::evictor::{BARREN_NS, Evictor};
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;
use folioswap_group::group::Group;
use folioswap_group::nested::{Bound, WHOLE};
use folioswap_group::segment::Member;
use folioswap_group::sums::saturating_sum;
use folioswap_policy::reclaim::shares::own_share;
use folioswap_policy::reclaim::turns::Given;
use folioswap_policy::reclaim::watermarks::Watermarks;

/// The reason for which this process should give up pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    /// The huge pages that are asked for need room. Nobody waits for it: hot pages are cooled no
    /// faster than was paid for, and pages that relatives share stay.
    Ahead,
    /// A group that the process is in has too much.
    Now,
    /// The same, but others are to give first ([`Turn`](folioswap_policy::reclaim::turns::Turn)).
    Later,
}

impl Evictor {
    /// The pages that this process should give up now: the greatest excess of any of its groups.
    pub(crate) fn wanted(&mut self) -> Wanted {
        let (shared, me) = (self.engine.group(), self.engine.member());
        let asked = me.reclaim_request_bytes.load(Relaxed);
        let (mut wanted, mut is_short, mut waits) = (0, false, false);
        for (depth, Bound { group, limit, charge }) in shared.bounds(self.engine.seat()).enumerate() {
            let marks = Watermarks::of(limit);
            // Room is made for memory that is about to come in.
            let total = charge.saturating_add(if group == WHOLE { shared.announced_bytes() } else { 0 });
            let reclaiming = &mut self.shortage.reclaiming[depth];
            if total <= marks.low {
                *reclaiming = false;
                continue;
            }
            is_short = true;
            *reclaiming |= total > marks.high || asked > 0;
            if !*reclaiming {
                continue;
            }
            if group == WHOLE {
                self.have_sharing_measured();
            }
            let share = own_share(shared, group, me, total - marks.low, |member, bytes| {
                if member.reclaim_request_bytes.swap(bytes, Relaxed) == 0 {
                    futex::post(&member.wake, Sharing::Shared);
                }
            });
            let given = Given { own: given(me), all: given_by_all(shared, group) };
            if self.shortage.turns[depth].comes(given, share, sys::now_ns()) {
                wanted = wanted.max(share.own).max(asked);
            } else {
                waits = true;
            }
        }
        if !is_short {
            me.reclaim_request_bytes.store(0, Relaxed);
        }
        match wanted {
            0 if waits => Wanted::Later,
            0 if self.misses_huge_page() => Wanted::Ahead,
            0 => Wanted::Nothing,
            _ => Wanted::Now,
        }
    }

    /// Whether room is missing for the huge pages that a walk of this process asks for. The process
    /// makes that room of its own pages alone: so not where other members have as much to give, who
    /// would have to give first if they are idle.
    fn misses_huge_page(&mut self) -> bool {
        if sys::now_ns() < self.shortage.no_headroom_until_ns {
            return false;
        }
        let (missing, Bound { limit, charge, .. }) =
            (self.engine.missing_huge_page_bytes(), self.engine.bound());
        let (marks, total) = (Watermarks::of(limit), charge.saturating_add(missing));
        let is_beyond = |mark| missing > 0 && total > mark;
        self.shortage.making_headroom = is_beyond(marks.low)
            && (self.shortage.making_headroom || is_beyond(marks.high))
            && self.evictable_of_others() < missing;
        self.shortage.making_headroom
    }

    fn evictable_of_others(&self) -> u64 {
        let me: *const Member = self.engine.member();
        let others = self.engine.group().live_members().filter(|&member| !core::ptr::eq(member, me));
        saturating_sum(others.map(|member| member.evictable_bytes.load(Relaxed)))
    }

    /// Notes that a batch that was to make headroom found nothing for it.
    pub(crate) fn give_up_headroom(&mut self) {
        self.shortage.making_headroom = false;
        self.shortage.no_headroom_until_ns = sys::now_ns() + BARREN_NS;
    }
}

/// The pages that a member has given so far.
fn given(member: &Member) -> u64 {
    let counted = |counter| member.figures.counter(counter);
    counted(Counter::PagesOut).saturating_add(counted(Counter::StolenClean))
}

/// The pages that the members of a group have given so far.
fn given_by_all(shared: Group<'_>, group: u32) -> u64 {
    saturating_sum(shared.members_within(group).map(given))
}

#[cfg(test)]
mod tests;

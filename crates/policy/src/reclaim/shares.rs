//! The share of each member: how many bytes it gives of a group's excess.

use crate::reclaim::turns::Share;
use crate::units::PAGE;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::group::Group;
use folioswap_group::seat::{Seat, WEIGHT_MAX};
use folioswap_group::segment::Member;

/// Returns how many bytes this member should evict now, of how many, and calls `ask` for each
/// member to wake for the rest.
///
/// The excess of `group` (one in `shared` that the member is in) over its low mark is taken from
/// idle members first, whatever their weight, then from all in proportion to the bytes that they
/// could give, divided by their weight. No more is asked of a member than it could give: the rest
/// is part of the next excess. Each member takes its own part and asks the others for theirs.
pub fn own_share(
    shared: Group<'_>,
    group: u32,
    me: &Member,
    excess: u64,
    mut ask: impl FnMut(&Member, u64),
) -> Share {
    let (mut idle, mut active) = (Sum::default(), Sum::default());
    for (seat, member) in shared.taken_within(group) {
        let sum = if member.active.load(Relaxed) == 0 { &mut idle } else { &mut active };
        let evictable = member.evictable_bytes.load(Relaxed);
        sum.evictable = sum.evictable.saturating_add(evictable);
        sum.weighed = sum.weighed.saturating_add(weighed(evictable, seat));
    }
    let from_idle = excess.min(idle.evictable);
    let from_active = (excess - from_idle).min(active.evictable);
    let mut own = 0;
    for (seat, member) in shared.taken_within(group) {
        let evictable = member.evictable_bytes.load(Relaxed);
        let (part, total) = if member.active.load(Relaxed) == 0 {
            (from_idle, idle.weighed)
        } else {
            (from_active, active.weighed)
        };
        if total == 0 {
            continue;
        }
        // The members may have published other values since the sums were made.
        let share = u128::from(part).saturating_mul(weighed(evictable, seat)) / total;
        let share = share.min(part.min(evictable).into()) as u64;
        if core::ptr::eq(member, me) {
            own = share;
        } else if share >= PAGE as u64 {
            ask(member, share);
        }
    }
    Share { own, all: from_idle.saturating_add(from_active) }
}

/// What members could give.
#[derive(Clone, Copy, Default)]
struct Sum {
    evictable: u64,
    weighed: u128,
}

/// What a member could give, as far as its weight lets it go: at [`WEIGHT_MAX`] the bytes
/// themselves.
fn weighed(evictable: u64, seat: &Seat) -> u128 {
    u128::from(evictable) * u128::from(WEIGHT_MAX) / u128::from(seat.weight())
}

#[cfg(test)]
mod tests;

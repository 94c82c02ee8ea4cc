//! The share of each member: how many bytes it gives of a group's excess.

use crate::units::PAGE;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::group::Group;
use folioswap_group::segment::Member;

/// Returns how many bytes this member should evict now, and calls `ask` for each member to wake for
/// the rest.
///
/// The excess of `group` (one in `shared` that the member is in) over its low mark is taken from
/// idle members first, then from all in proportion to the bytes that they could give. Each member
/// takes its own part and asks the others for theirs.
pub fn own_share(
    shared: Group<'_>,
    group: u32,
    me: &Member,
    excess: u64,
    mut ask: impl FnMut(&Member, u64),
) -> u64 {
    let (mut idle, mut active) = (0u64, 0u64);
    for member in shared.members_within(group) {
        let sum = if member.active.load(Relaxed) == 0 { &mut idle } else { &mut active };
        *sum = sum.saturating_add(member.evictable_bytes.load(Relaxed));
    }
    let from_idle = excess.min(idle);
    let from_active = (excess - from_idle).min(active);
    let mut own = 0;
    for member in shared.members_within(group) {
        let evictable = member.evictable_bytes.load(Relaxed) as u128;
        let (part, total) =
            if member.active.load(Relaxed) == 0 { (from_idle, idle) } else { (from_active, active) };
        if total == 0 {
            continue;
        }
        // The members may have published other values since the sums were made.
        let share = (part as u128 * evictable / total as u128).min(part as u128) as u64;
        if core::ptr::eq(member, me) {
            own = share;
        } else if share >= PAGE as u64 {
            ask(member, share);
        }
    }
    own
}

#[cfg(test)]
mod tests;

//! What a process should give up, and whether somebody waits for it.

use crate::evictor::Evictor;
use crate::futex::{self, Sharing};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_core::reclaim::shares::own_share;
use folioswap_core::reclaim::watermarks::Watermarks;
use folioswap_group::nested::{Bound, WHOLE};

/// Why this process should give up pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    /// So that the huge pages that are asked for may be had. Nobody waits for it, and it is not worth more than what is cold.
    Ahead,
    /// A group that it is in has too much.
    Now,
}

impl Evictor {
    /// What this process should give up now: the most that any of the groups that it is in has too much.
    pub(crate) fn wanted(&mut self) -> Wanted {
        let (segment, me) = (self.engine.segment(), self.engine.member());
        let asked = me.reclaim_request_bytes.load(Relaxed);
        let (mut wanted, mut is_short) = (0, false);
        for (depth, Bound { group, limit, charge }) in segment.bounds(me).enumerate() {
            let marks = Watermarks::of(limit);
            // What somebody is about to take in is made room for.
            let total = charge + if group == WHOLE { segment.announced_bytes() } else { 0 };
            let reclaiming = &mut self.reclaiming[depth];
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
            let own = own_share(segment, group, me, total - marks.low, |member, bytes| {
                if member.reclaim_request_bytes.swap(bytes, Relaxed) == 0 {
                    futex::post(&member.wake, Sharing::Shared);
                }
            });
            wanted = wanted.max(own).max(asked);
        }
        if !is_short {
            me.reclaim_request_bytes.store(0, Relaxed);
        }
        match wanted {
            0 if self.misses_whole() => Wanted::Ahead,
            0 => Wanted::Nothing,
            _ => Wanted::Now,
        }
    }

    /// Is there no room for the huge pages that a walk of this process's asks for? It alone makes that, of its own pages.
    fn misses_whole(&mut self) -> bool {
        let (missing, Bound { limit, charge, .. }) = (self.engine.missing_whole(), self.engine.bound());
        let (marks, total) = (Watermarks::of(limit), charge + missing);
        let is_beyond = |mark| missing > 0 && total > mark;
        self.making_room = is_beyond(marks.low) && (self.making_room || is_beyond(marks.high));
        self.making_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::For;
    use crate::test_memory::{moving_engine, skip_without_huge_page};
    use folioswap_core::page_table::BLOCK;

    const LIMIT: u64 = 1 << 30;

    #[test]
    fn for_huge_pages_that_are_asked_for_room_is_made_ahead_and_nobody_else_is_asked() {
        let Some(engine) = moving_engine() else { return };
        engine.segment().header.limit_bytes.store(LIMIT, Relaxed);
        engine.make_pool(LIMIT);
        engine.member().evictable_bytes.store(LIMIT, Relaxed);
        let Ok(taken) = engine.take_whole(For::SwapIn) else {
            skip_without_huge_page();
            return;
        };
        engine.whole_has_moved(taken, taken.address);
        let mut evictor = Evictor::new(engine);
        let missing = engine.missing_whole();
        assert!(missing > 8 * BLOCK as u64 / 2);
        let marks = Watermarks::of(LIMIT);
        let mut at = |charge: u64| {
            engine.segment().header.device_bytes.store(charge, Relaxed);
            evictor.wanted()
        };
        assert_eq!(at(marks.high - missing), Wanted::Nothing);
        assert_eq!(at(marks.high - missing + 1), Wanted::Ahead);
        assert_eq!(at(marks.low - missing + 1), Wanted::Ahead, "once begun, down to the low mark");
        assert_eq!(at(marks.low - missing), Wanted::Nothing);
        assert_eq!(at(marks.low - missing + 1), Wanted::Nothing, "until it is beyond the high one again");
    }
}

//! Headroom for a forked child: its engine takes memory before anything can be taken from the
//! child.

use crate::engine::Engine;
use crate::kernel::sys;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_policy::reclaim::watermarks::Watermarks;

/// Memory that a child's engine takes until it can evict: 0.7 to 1.8 MiB were measured, most of it
/// copies of inherited tables.
const CHILD_BYTES: u64 = 2 << 20;

/// Longest wait of a fork for this headroom, below the brink.
const PATIENCE_NS: u64 = 50_000_000;
/// Longest wait on the brink.
const PATIENCE_BRINK_NS: u64 = 500_000_000;

impl Engine {
    /// Waits, for a while at most, until the group has headroom for a child, as a fault waits at
    /// the limit. Called by the forking thread before it takes any lock.
    pub(crate) fn wait_for_headroom_for_child(&self) {
        if !self.is_engaged() {
            return;
        }
        let (limit, me) = (self.decisions().limit_bytes(), self.member());
        let brink = Watermarks::of(limit).brink;
        let began_ns = sys::now_ns();
        self.wait_for_charge(|charge, now| {
            let total = charge.saturating_add(CHILD_BYTES);
            let patience_ns = if total < brink { PATIENCE_NS } else { PATIENCE_BRINK_NS };
            if total <= limit || now - began_ns >= patience_ns {
                return true;
            }
            me.reclaim_request_bytes.fetch_max(CHILD_BYTES, Relaxed);
            false
        });
    }
}

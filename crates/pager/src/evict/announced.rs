//! Memory that was announced and did not come is forgotten.

use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::segment::Member;

/// Announced memory that did not come for this long does not come any more: its thread may have
/// left by a jump out of a signal handler.
pub(crate) const ANNOUNCED_NS: u64 = 10_000_000_000;

/// The last announcement that was seen, and since when. The evictor's own; a fork may lose it
/// without harm.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Announced {
    bytes: u64,
    since_ns: u64,
}

impl Announced {
    /// Forgets an announcement that is old and whose memory did not come.
    pub(crate) fn expire(&mut self, member: &Member, now_ns: u64) {
        let bytes = member.announced_bytes.load(Relaxed);
        if bytes == 0 || bytes != self.bytes {
            *self = Announced { bytes, since_ns: now_ns };
        } else if now_ns - self.since_ns >= ANNOUNCED_NS {
            let _ = member.announced_bytes.compare_exchange(bytes, 0, Relaxed, Relaxed);
        }
    }
}

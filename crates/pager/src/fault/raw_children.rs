//! The children made by a bare clone(2) that this process serves, as the handler keeps them.

use crate::engine::Engine;
use crate::engine::due::Due;
use crate::engine::raw_tables::CHILDREN_MAX;
use crate::kernel::uffd::Userfault;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::protocol::Ending;
use folioswap_group::sums::saturating_sum;
use folioswap_policy::page_table::PageTable;

#[derive(Clone, Copy)]
pub(crate) struct RawChild {
    pub(crate) userfault: Userfault,
    pub(crate) table: &'static PageTable,
}

/// The children that this process serves.
pub(crate) struct RawChildren {
    pub(crate) children: [Option<RawChild>; CHILDREN_MAX],
    pub(crate) waiting: [i32; CHILDREN_MAX],
    pub(crate) waiting_count: usize,
    pub(crate) probe_due: Due,
    pub(crate) patience_ends_ns: u64,
    pub(crate) unfound: Unfound,
}

/// Memory of the group that such children caused, and that the supervisor may not have found. The
/// supervisor counts a child a few of its walks after the birth, and the growth of a child at its
/// next walk.
pub(crate) struct Unfound {
    /// Bytes, by the walk before which they came; the present walk first.
    pub(crate) recent: [u64; WALKS],
    walks_seen: u32,
    ended_seen: u64,
    /// The number of walks that had been made when the youngest child was born.
    youngest: u32,
}

/// Walks after which the supervisor has counted a new child: it gives a process 150 ms to become a
/// member, and walks every 100 ms at most.
const WALKS: usize = 5;

/// Walks after which the supervisor has counted the growth of a child that it knows: the walk that
/// was under way may have missed it, the next one did not.
const WALKS_KNOWN: usize = 2;

impl Unfound {
    /// Walks were made meanwhile: forgets the bytes that are old enough to have been found.
    fn forget(&mut self, walks: u32) {
        for _ in 0..walks.wrapping_sub(self.walks_seen).min(WALKS as u32) {
            self.recent.rotate_right(1);
            self.recent[0] = 0;
        }
        self.walks_seen = walks;
    }

    /// Publishes the bytes that may not have been found. Pages resident in a child count nowhere,
    /// and pages that this process makes its own while it shares them with a child add to the
    /// memory of the group.
    pub(crate) fn publish(&mut self, engine: &Engine) {
        let member = engine.member();
        self.forget(engine.decisions().census_walks());
        let ended = member.sharing.ended_bytes();
        self.recent[0] = self.recent[0].saturating_add(ended.wrapping_sub(self.ended_seen));
        self.ended_seen = ended;
        let known = self.walks_seen.wrapping_sub(self.youngest) > WALKS as u32;
        let missed = if known { WALKS_KNOWN } else { WALKS };
        member.unfound_bytes.store(saturating_sum(self.recent[..missed].iter().copied()), Relaxed);
    }

    /// Notes that a child was born.
    pub(crate) fn begin(&mut self, engine: &Engine) {
        self.youngest = engine.decisions().census_walks();
    }

    /// The last such child is gone: nothing is left to be found.
    pub(crate) fn clear(&mut self, engine: &Engine) {
        self.recent = [0; WALKS];
        self.publish(engine);
        self.recent = [0; WALKS];
        engine.member().unfound_bytes.store(0, Relaxed);
    }
}

impl RawChildren {
    pub(crate) const fn new() -> Self {
        RawChildren {
            children: [const { None }; CHILDREN_MAX],
            waiting: [0; CHILDREN_MAX],
            waiting_count: 0,
            probe_due: Due::at_once(),
            patience_ends_ns: 0,
            unfound: Unfound { recent: [0; WALKS], walks_seen: 0, ended_seen: 0, youngest: 0 },
        }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting_count == 0 && self.children.iter().all(Option::is_none)
    }
    /// Keeps a child that came while a fork froze the words: it is adopted at the thaw, and stands
    /// still until then.
    pub(crate) fn wait(&mut self, engine: &Engine, child: i32) {
        if self.waiting_count == CHILDREN_MAX {
            engine.end(Ending::TooMany, None);
        }
        self.waiting[self.waiting_count] = child;
        self.waiting_count += 1;
    }
}

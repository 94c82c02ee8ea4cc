//! The compressed store's share of the memory: what is beyond it, the oldest first, goes on to the devices below
//! (`folioswap_policy::reclaim::store_share` says how large it should be).
//!
//! A group's store is no larger than the largest share of the limit. Within it each process has a share of its own memory: what it would
//! need more of for its own refaults, others cannot know.

use crate::evict::evictor::Evictor;
use crate::evict::tiers::DEMOTED_AT_ONCE;
use crate::kernel::sys;
use crate::store::demote::RUN_PAGES;
use crate::units::PAGE;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::MmStat;
use folioswap_group::counters::Gauge;
use folioswap_group::segment::Scope;
use folioswap_policy::reclaim::store_share::{SHARES, Store};
use folioswap_slots::DeviceMask;

/// Between two judgements, at least: what is demoted for one is gone by then.
const JUDGED_NS: u64 = 100_000_000;

impl Evictor {
    /// What of the compressed store goes on as soon as it is larger than its share: to these devices. Devices do not change their place.
    fn below_store(&self) -> DeviceMask {
        match self.engine.segment().scope() {
            Scope::Total => self.tiers.turns.below_store(self.on_disk(DeviceMask::ALL)),
            // What is stored takes nothing of the limit.
            Scope::Resident => DeviceMask::NONE,
        }
    }

    /// Says which devices have pages that go to the store when they leave next, if they are touched one by one: what is below a store
    /// that is as large as it may be.
    pub(crate) fn note_devices_below_store(&self) {
        let refilled = if self.tiers.store_share.is_most() { self.below_store() } else { DeviceMask::NONE };
        self.engine.counts.refilled_from.store(refilled.bits(), Relaxed);
    }

    /// Keeps the compressed store within its share: what was stored longest ago goes on to the devices below it. Under the
    /// gate, a little at a time. Returns how many pages went.
    ///
    /// Nothing of a store that relatives share after a fork: it would be written once by each of them, and what one demotes frees
    /// nothing, but makes the store's memory its own.
    pub(crate) fn demote_excess(&mut self) -> u64 {
        let (engine, below) = (self.engine, self.below_store());
        if below.is_empty() || engine.shares_memory() {
            return 0;
        }
        let own = engine.space.mm_stat();
        self.judge_store_share(own);
        let pages = self.beyond_group_share(own).max(self.beyond_own_share(own));
        if pages < RUN_PAGES as u64 {
            return 0;
        }
        self.demote_to(below, pages.min(DEMOTED_AT_ONCE))
    }

    fn judge_store_share(&mut self, own: MmStat) {
        if !self.tiers.share_due.take(sys::now_ns(), JUDGED_NS) {
            return;
        }
        let (engine, page) = (self.engine, PAGE as u64);
        let (memory, taken) = (self.survey.size.anonymous / page, own.compr_data_size / page);
        let store = Store { memory, stored: own.objects, taken };
        self.tiers.store_share.judge(&engine.distances, &engine.costs, store, engine.workingset.ages());
        engine.figures().set(Gauge::MaxPool, self.own_share_bytes());
        self.note_devices_below_store();
    }

    /// Pages of ours beyond what the stores of all members of a group that we are in may take. Not what they occupy: a store keeps some
    /// empty memory, which no demotion gives back.
    fn beyond_group_share(&self, own: MmStat) -> u64 {
        let (engine, segment) = (self.engine, self.engine.segment());
        let published = engine.figures().gauge(Gauge::ComprDataSize);
        // Each member of a group gives its part of what that has too much.
        let part = |group| {
            let limit = segment.limit_of(group).load(Relaxed);
            let all =
                engine.sum_over(group, Gauge::ComprDataSize).saturating_sub(published) + own.compr_data_size;
            part_of(own.objects, all.saturating_sub(limit / 100 * SHARES[0]), all)
        };
        segment.around(engine.member().group.load(Relaxed)).map(part).max().unwrap_or(0)
    }

    /// Pages beyond what our own refaults allow.
    fn beyond_own_share(&self, own: MmStat) -> u64 {
        if self.tiers.store_share.is_most() {
            return 0;
        }
        part_of(own.objects, own.compr_data_size.saturating_sub(self.own_share_bytes()), own.compr_data_size)
    }

    fn own_share_bytes(&self) -> u64 {
        self.survey.size.anonymous / 100 * self.tiers.store_share.percent()
    }
}

/// `part` of `whole` of so many pages.
fn part_of(pages: u64, part: u64, whole: u64) -> u64 {
    (u128::from(part) * u128::from(pages) / u128::from(whole.max(1))) as u64
}

//! The compressed store's share of the memory: pages beyond it, the oldest first, go on to the
//! devices below (`folioswap_policy::reclaim::store_share` says how large it should be).
//!
//! A group's store is no larger than the largest share of the limit. Within it each process has a
//! share of its own memory, because the others cannot know how much it would need for its own
//! refaults.

use crate::engine::Engine;
use crate::evict::evictor::Evictor;
use crate::evict::tiers::DEMOTED_AT_ONCE;
use crate::kernel::sys;
use crate::store::demote::RUN_PAGES;
use crate::units::PAGE;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::MmStat;
use folioswap_group::counters::Gauge;
use folioswap_group::decisions::Scope;
use folioswap_policy::reclaim::store_share::{SHARES, Store, StoreShare};
use folioswap_slots::DeviceMask;
use folioswap_space::space::EMPTY_RESERVE;

/// The least time between two judgements: pages that are demoted for one are gone by then.
const JUDGED_NS: u64 = 100_000_000;

impl Evictor {
    /// Of these devices, those to which the excess of the compressed store goes on. Devices do not
    /// change their order.
    pub(crate) fn below_store(&self, devices: DeviceMask) -> DeviceMask {
        match self.engine.decisions().scope() {
            Scope::Total => self.tiers.turns.below_store(self.on_disk(devices)),
            // A store that takes nothing of the limit has no excess.
            Scope::Resident => DeviceMask::NONE,
        }
    }

    /// Publishes which devices have pages that go to the store when they leave next, if they are
    /// touched one by one: those below a store that is as large as it may be.
    pub(crate) fn note_devices_below_store(&self) {
        let refills = self.tiers.turns.has_store() && self.tiers.store_share.is_most();
        let refilled = if refills { self.below_store(DeviceMask::ALL) } else { DeviceMask::NONE };
        self.engine.counts.refilled_from.store(refilled.bits(), Relaxed);
    }

    /// Keeps the compressed store within its share: the pages that were stored longest ago go on to
    /// the devices below it. The caller holds the gate; a little is done at a time. Returns how
    /// many pages went.
    ///
    /// A store that relatives share after a fork is left alone: each of them would write it once,
    /// and a page that one demotes frees nothing, but makes the store's memory its own.
    pub(crate) fn demote_excess(&mut self) -> u64 {
        let (engine, below) = (self.engine, self.below_store(DeviceMask::ALL));
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
        let used = own.mem_used_total.saturating_sub(EMPTY_RESERVE) / page;
        let store = Store { memory, stored: own.objects, taken, used };
        self.tiers.store_share.judge(&engine.distances, &engine.costs, store, engine.workingset.ages());
        self.publish_own_share();
        self.note_devices_below_store();
    }

    /// This process's pages beyond the share that the stores of all members of its groups may take.
    /// Pages are counted, not memory: a store keeps some empty memory, which no demotion gives
    /// back.
    fn beyond_group_share(&self, own: MmStat) -> u64 {
        let (engine, decisions) = (self.engine, self.engine.decisions());
        let published = engine.figures().gauge(Gauge::ComprDataSize);
        // Each member of a group gives its part of the group's excess.
        let part = |group| {
            let limit = decisions.limit_of(group);
            let others = engine.sum_over(group, Gauge::ComprDataSize).saturating_sub(published);
            let all = others.saturating_add(own.compr_data_size);
            part_of(own.objects, all.saturating_sub(limit / 100 * SHARES[0]), all)
        };
        decisions.around(engine.seat().group()).map(part).max().unwrap_or(0)
    }

    /// Pages beyond the share that this process's own refaults allow.
    fn beyond_own_share(&self, own: MmStat) -> u64 {
        if self.tiers.store_share.is_most() {
            return 0;
        }
        part_of(own.objects, own.compr_data_size.saturating_sub(self.own_share_bytes()), own.compr_data_size)
    }

    /// Publishes the most that the store may take, once that was judged; zero says that nothing is
    /// known yet.
    pub(crate) fn publish_own_share(&self) {
        if self.engine.distances.are_counted() {
            self.engine.figures().set(Gauge::MaxPool, self.own_share_bytes().max(1));
        }
    }

    fn own_share_bytes(&self) -> u64 {
        self.survey.size.anonymous / 100 * self.tiers.store_share.percent()
    }
}

/// The share with which a process begins: that of the others of its group, by their size. A process
/// of a build ends before it has judged its own.
pub(crate) fn share_of_others(engine: &Engine) -> StoreShare {
    let (mut share, mut memory) = (0_u64, 0_u64);
    for member in engine.group().live_members() {
        let figures = &member.figures;
        if figures.gauge(Gauge::MaxPool) > 0 {
            share = share.saturating_add(figures.gauge(Gauge::MaxPool));
            memory = memory.saturating_add(figures.gauge(Gauge::Resident));
        }
    }
    share.saturating_mul(100).checked_div(memory).map_or_else(StoreShare::default, StoreShare::near)
}

/// The fraction `part / whole` of so many pages.
fn part_of(pages: u64, part: u64, whole: u64) -> u64 {
    (u128::from(part) * u128::from(pages) / u128::from(whole.max(1))) as u64
}

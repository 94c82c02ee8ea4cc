//! The evictor: the one thread of a process that takes memory out of it.
//!
//! It sleeps until the process grows, somebody asks for memory, or its interval is over; measures; registers memory when
//! the group comes near its limit; and evicts down to the low mark. A batch runs under the `gate`, so a fork finds it
//! between two batches.

use crate::engine::arena::StorePages;
use crate::engine::due::Due;
use crate::engine::fork_state::Protection;
use crate::engine::placement::EvictorPlacement;
use crate::engine::pool::Prepared;
use crate::engine::{Engine, Life, link};
use crate::evict::announced::Announced;
use crate::evict::cold::ColdRanges;
use crate::evict::registration::Memory;
use crate::evict::sharing::ToProtect;
use crate::evict::swapoff::Swapoff;
use crate::evict::tiers::RunBerths;
use crate::evict::wanted::Wanted;
use crate::evict::workingset::InactiveSize;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::proc::ProcessSize;
use crate::kernel::uffd::Watch;
use crate::kernel::{pagemap, sys};
use crate::staging::batch::{Batch, Scattered};
use crate::staging::ring::HUGE_PAGE_BERTHS;
use crate::store::demote::Demotion;
use crate::store::recompress::Rounds;
use crate::units::{PAGE, PIECE};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_devices::Scratch;
use folioswap_group::devices::DEVICES_MAX;
use folioswap_group::nested::{Bound, DEPTH_MAX};
use folioswap_group::protocol::{Kind, OutOfMemory};
use folioswap_group::segment::{GroupState, Scope};
use folioswap_policy::reclaim::aging::Aging;
use folioswap_policy::reclaim::standstill::{Standstill, nothing_is_evictable};
use folioswap_policy::reclaim::store_share::StoreShare;
use folioswap_policy::reclaim::watermarks::{Watermarks, grace};
use folioswap_policy::turns::Turns;

/// Bytes per second that threads here can touch for the first time, at most.
const TOUCH_BYTES_PER_SECOND: u64 = 10 << 30;

const INTERVAL_MIN_NS: u64 = 1_000_000;

const INTERVAL_MAX_NS: u64 = 20_000_000;

/// After a round of the clock that found nothing to take, the process counts as empty for this long.
pub(crate) const BARREN_NS: u64 = 50_000_000;

/// The less a process does, the less often it is looked at: after this part of the time for which it has done nothing.
const IDLE_SHARE: u64 = 16;

const INTERVAL_IDLE_MAX_NS: u64 = 4_000_000;

/// Where the list of present pages comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionsOf {
    /// The clock's hand.
    Clock,
    /// What is advised to be cold.
    Cold,
}

/// The evictor's own state; lost without harm at a fork.
pub(crate) struct Evictor {
    pub(crate) engine: &'static Engine,
    pub(crate) hand: usize,
    pub(crate) regions: [pagemap::Region; 64],
    pub(crate) region_next: usize,
    pub(crate) region_count: usize,
    pub(crate) regions_of: RegionsOf,
    /// What the program has said to be cold, as far as it was not looked at since.
    pub(crate) cold: ColdRanges,
    /// The place of the advice that was followed last.
    pub(crate) advised_last: usize,
    /// The last round followed one.
    pub(crate) followed_advice: bool,
    pub(crate) scratch: Scratch,
    pub(crate) text: [u8; 16 << 10],
    pub(crate) size: ProcessSize,
    pub(crate) scanned_size: u64,
    pub(crate) scan_next_ns: u64,
    /// Looks at the mappings in a row that found nothing new.
    pub(crate) scans_in_vain: u32,
    /// Until when the program counts as growing.
    pub(crate) growing_until_ns: u64,
    pub(crate) slow_due: Due,
    pub(crate) epoch_due: Due,
    pub(crate) shmem: u64,
    /// Shared and file memory when shared memory was measured last.
    pub(crate) shared_seen: u64,
    pub(crate) announced: Announced,
    pub(crate) minor_faults_seen: u64,
    pub(crate) rollup_next_ns: u64,
    pub(crate) rollup_soonest_ns: u64,
    /// Forks of this process at the last look at what is shared.
    pub(crate) rollup_forks: u32,
    pub(crate) ask_to_measure_due: Due,
    pub(crate) idle_since_ns: u64,
    pub(crate) faults_seen: u64,
    pub(crate) standstill: Standstill,
    pub(crate) turns: Turns,
    pub(crate) run_berths: RunBerths,
    pub(crate) ask_full_due: Due,
    /// No device took the last folio.
    pub(crate) devices_full: bool,
    /// A device that failed is not written to before, by number.
    pub(crate) rests_until_ns: [u64; DEVICES_MAX],
    /// For how long it rested last.
    pub(crate) rest_ns: [u64; DEVICES_MAX],
    /// Of our own group, and of those around it: charged beyond its high mark, and not down to its low mark since.
    pub(crate) reclaiming: [bool; DEPTH_MAX],
    /// The same for the huge pages that are asked for.
    pub(crate) making_headroom: bool,
    /// Nothing was found for them: until then it is not looked for.
    pub(crate) no_headroom_until_ns: u64,
    /// Why the batch is made that is under way.
    pub(crate) reason: Wanted,
    pub(crate) wraps: u64,
    pub(crate) aging: Aging,
    pub(crate) inactive: InactiveSize,
    pub(crate) desperate: bool,
    /// The last write-back found no device that takes the oldest folio.
    pub(crate) stuck: bool,
    /// Bytes of staging that the system got since it gave a huge page: as much may be taken from it in its stead.
    pub(crate) given_back: u64,
    pub(crate) demotion: Demotion,
    pub(crate) swapoff: Swapoff,
    pub(crate) store_share: StoreShare,
    pub(crate) share_due: Due,
    pub(crate) recompression: Rounds,
    pub(crate) clusters_due: Due,
    /// Pages that had been written to files at the last look at empty clusters.
    pub(crate) file_pages_seen: u64,
    pub(crate) barren_until_ns: u64,
    pub(crate) compact_due: Due,
    pub(crate) placement: EvictorPlacement,
    /// How the pages of the last batch lay.
    pub(crate) scattered: Scattered,
    /// The handler has not taken a plan: until then it is offered none, so long after that.
    pub(crate) declined_until_ns: u64,
    pub(crate) declined_ns: u64,
    pub(crate) validation_next_ns: u64,
    /// When an embedder's resident pages are counted anew.
    pub(crate) count_next_ns: u64,
}

/// The evictor thread.
///
/// # Safety
/// `argument` is the engine's address; the handler has joined the group; this is the only evictor of the process.
pub(crate) unsafe extern "C" fn run(argument: usize) -> ! {
    sys::name_thread(c"folioswap-evict");
    sys::raise_priority();
    // SAFETY: by contract.
    let engine: &'static Engine = unsafe { &*(argument as *const Engine) };
    Evictor::live(engine);
    // Only an embedder's evictor ends.
    sys::kill_self()
}

impl Evictor {
    /// The work of the calling thread until an embedder's engine is stopped.
    pub(crate) fn live(engine: &'static Engine) {
        engine.evictor_thread.store(sys::gettid(), Release);
        let mut evictor = Self::new(engine);
        evictor.note_devices_below_store();
        loop {
            let wake = &engine.member().wake;
            let observed = wake.load(Relaxed);
            let interval_ns = evictor.round();
            if engine.embedded.is_stopping() {
                return;
            }
            if engine.life() == Life::Starting {
                // Only now may the program go on: what it touches from here on is counted.
                engine.life.store(Life::Running as u32, Release);
                let everybody = i32::MAX as u32;
                let _ = rustix::thread::futex::wake(
                    &engine.life,
                    rustix::thread::futex::Flags::PRIVATE,
                    everybody,
                );
            }
            futex::wait(wake, observed, interval_ns, Sharing::Shared);
        }
    }

    /// With nothing done yet.
    pub(crate) fn new(engine: &'static Engine) -> Self {
        Evictor {
            engine,
            hand: 0,
            regions: [pagemap::EMPTY; 64],
            region_next: 0,
            region_count: 0,
            regions_of: RegionsOf::Clock,
            cold: ColdRanges::NONE,
            advised_last: 0,
            followed_advice: false,
            scratch: Scratch::new(),
            text: [0; 16 << 10],
            size: ProcessSize::default(),
            scanned_size: 0,
            scan_next_ns: 0,
            scans_in_vain: 0,
            growing_until_ns: 0,
            slow_due: Due::at_once(),
            epoch_due: Due::at_once(),
            shmem: 0,
            shared_seen: 0,
            announced: Announced::default(),
            minor_faults_seen: 0,
            rollup_next_ns: 0,
            rollup_soonest_ns: 0,
            rollup_forks: 0,
            ask_to_measure_due: Due::at_once(),
            idle_since_ns: sys::now_ns(),
            faults_seen: 0,
            standstill: Standstill::new(sys::now_ns()),
            turns: Turns::new(engine.segment().devices().map(|(device, _)| device)).among(engine.permitted()),
            run_berths: RunBerths::new(),
            ask_full_due: Due::at_once(),
            devices_full: false,
            rests_until_ns: [0; DEVICES_MAX],
            rest_ns: [0; DEVICES_MAX],
            reclaiming: [false; DEPTH_MAX],
            making_headroom: false,
            no_headroom_until_ns: 0,
            reason: Wanted::Now,
            wraps: 0,
            aging: Aging::default(),
            inactive: InactiveSize::new(engine),
            desperate: false,
            stuck: false,
            given_back: 0,
            demotion: Demotion::new(),
            swapoff: Swapoff::new(),
            store_share: StoreShare::default(),
            share_due: Due::at_once(),
            recompression: Rounds::new(),
            clusters_due: Due::at_once(),
            file_pages_seen: 0,
            barren_until_ns: 0,
            compact_due: Due::at_once(),
            placement: EvictorPlacement::new(),
            scattered: Scattered::No,
            declined_until_ns: 0,
            declined_ns: 0,
            validation_next_ns: 0,
            count_next_ns: 0,
        }
    }

    /// Measures, and evicts as long as it must. Returns how long it may sleep.
    fn round(&mut self) -> u64 {
        let segment = self.engine.segment();
        loop {
            self.let_pass();
            let gate = self.engine.gate.lock();
            self.engine.apply_requests();
            self.measure();
            self.follow_devices();
            let bound = self.engine.bound();
            let (marks, total) = (Watermarks::of(bound.limit), bound.charge);
            if segment.header.state.load(Relaxed) == GroupState::Ending as u32 {
                return 100_000_000;
            }
            let is_embedded = self.engine.embedded.is_on();
            if self.engine.embedded.is_stopping() {
                return 0;
            }
            // What somebody is about to take in is made room for, but nobody waits as if it were there.
            let claimed = total + segment.announced_bytes();
            let scan_wanted = self.engine.scan_wanted.load(Acquire) != 0;
            if claimed >= marks.engage || scan_wanted || self.engine.is_engaged() || is_embedded {
                self.engage();
                self.register_new(if total >= marks.low { Memory::Short } else { Memory::Ample });
            }
            if is_embedded {
                self.engine.follow_command();
            }
            // After the look at the mappings: what is new is not left alone for longer than it must.
            self.validate_if_due();
            if !self.engine.is_engaged() {
                self.decline_advice();
                return self.interval(marks.engage.saturating_sub(total));
            }
            self.protect_if_wanted(total, marks);
            self.compact();
            self.give_back_clusters();
            // Demotion waits for a disk. At the limit, and while new memory is touched that is not looked at yet, taking pages out is
            // what counts: what the store takes beyond its share then goes on later.
            let is_short = total >= marks.low || total + self.engine.missing_huge_page_bytes() >= marks.low;
            let may_demote = is_short && total < marks.limit && sys::now_ns() >= self.growing_until_ns;
            let demoted = if may_demote { self.demote_excess() } else { 0 };
            let demoted = demoted
                + self.move_off_leaving(if total < marks.limit { Memory::Ample } else { Memory::Short });
            let room = marks.low.saturating_sub(total).max(self.given_back);
            if self.engine.prepare_huge_page(room) == Prepared::FromSystem {
                self.given_back = 0;
            }
            let wanted = self.wanted();
            // Where memory is short, advice and reclaim take turns.
            let may_advise = wanted == Wanted::Nothing || !self.followed_advice;
            let advised = if may_advise { self.follow_advice() } else { None };
            self.followed_advice = advised.is_some();
            if let Some(batch) = advised {
                drop(gate);
                self.after(batch, bound);
                if batch.event_pending {
                    rustix::thread::sched_yield();
                }
                continue;
            }
            if wanted == Wanted::Nothing {
                if total < marks.limit {
                    self.desperate = false;
                }
                let is_near_limit = (marks.engage..marks.limit).contains(&total);
                let is_quiet = is_near_limit && demoted == 0 && sys::now_ns() >= self.growing_until_ns;
                let rest_ns = if is_quiet { self.recompress_idle() } else { u64::MAX };
                drop(gate);
                self.after(Batch::default(), bound);
                // What nobody can take out of the program, the stored part may make room for.
                // Not where a round just found nothing: it has done so already, and looks again in a while.
                let is_barren = sys::now_ns() < self.barren_until_ns;
                let last_resort =
                    total >= marks.limit && !is_barren && nothing_is_evictable(segment, bound.group);
                if demoted > 0 || last_resort && self.demote() > 0 {
                    continue;
                }
                self.forget_regions();
                let rest_ns = rest_ns.min(self.leaving_rest_ns());
                return self.interval(marks.limit.saturating_sub(total)).min(rest_ns);
            }
            self.reason = wanted;
            // Whatever the last shortage allowed is not allowed for this.
            self.desperate &= wanted == Wanted::Now;
            let batch = self.evict_batch();
            drop(gate);
            self.after(batch, bound);
            if batch.event_pending {
                rustix::thread::sched_yield();
            }
            if batch.isolated + batch.folios == 0 && !batch.event_pending {
                if wanted == Wanted::Ahead {
                    self.give_up_headroom();
                    self.forget_regions();
                    return self.interval(marks.limit.saturating_sub(total));
                }
                if batch.shared > 0 && !self.desperate {
                    self.desperate = true;
                    continue;
                }
                if demoted > 0 || self.demote() > 0 {
                    continue;
                }
                // Nothing here to give: let the others give, and look again in a while.
                self.barren_until_ns = sys::now_ns() + BARREN_NS;
                self.forget_regions();
                return INTERVAL_MIN_NS;
            }
        }
    }

    /// A fork that is being prepared goes first; what it will share is protected before it does.
    pub(crate) fn let_pass(&mut self) {
        let engine = self.engine;
        engine.fork.let_pass(|| {
            let Bound { limit, charge, .. } = engine.bound();
            if engine.has_room_for_copies(charge, Watermarks::of(limit)) {
                return Protection::Unprotected;
            }
            engine.protect_registered(ToProtect::All);
            Protection::Protected
        });
    }

    /// Protects what a fork left unprotected, when there is no room any more for copies of all that. Under the gate.
    fn protect_if_wanted(&mut self, total: u64, marks: Watermarks) {
        let engine = self.engine;
        if engine.fork.protection() == Protection::Unprotected
            && !engine.fork.is_preparing()
            && !engine.has_room_for_copies(total, marks)
        {
            // First: what is shared from here on, with a child by a bare clone that the handler adopts meanwhile, says so anew, and is protected in
            // the next round.
            engine.fork.set_protection(Protection::Protected);
            engine.protect_registered(ToProtect::Shared);
        }
    }

    /// Before a sleep: the list of present pages will be old. What of it the clock has not looked at waits for the next round: a hand that goes
    /// on there finds a loop's pages just before they are needed (GNU sort: 311 000 pages in instead of 194 000).
    pub(crate) fn forget_regions(&mut self) {
        if self.regions_of == RegionsOf::Cold && self.region_next < self.region_count {
            self.cold.go_on_from(self.regions[self.region_next].start as usize);
        }
        (self.region_next, self.region_count) = (0, 0);
    }

    /// Looks at what came of a round, which began with this limit as the tightest.
    fn after(&mut self, batch: Batch, bound: Bound) {
        let (total, limit) = (bound.charge, bound.limit);
        let (segment, me) = (self.engine.segment(), self.engine.member());
        let freed = batch.written * PAGE as u64;
        let _ = me
            .reclaim_request_bytes
            .fetch_update(Relaxed, Relaxed, |asked| Some(asked.saturating_sub(freed)));
        if freed > 0 {
            futex::post(&segment.header.charge_sank, Sharing::Shared);
        }
        let (sight, now) = (self.standstill.look(segment, bound, freed), sys::now_ns());
        let certain = total.min(segment.certain_charge_within(bound.group));
        let crawls = segment.scope() == Scope::Total
            && self.standstill.crawls(certain, self.engine.stored_by(bound.group), limit, now);
        if self.standstill.is_final(sight, now) || crawls {
            // What fills the limit: pages that no device takes any more, or what never could be swapped?
            let stored = self.engine.space.mm_stat().mem_used_total;
            let full = batch.stuck || self.devices_full || stored > limit / 8;
            let reason = if full { OutOfMemory::SwapFull } else { OutOfMemory::Unmanaged };
            let control = self.engine.descriptors.control.load(Relaxed);
            link::tell(control, Kind::OutOfMemory, [reason as u64, total, limit], None);
        }
    }

    /// Time in which the fastest first touches could use up `headroom` and what may be overshot.
    fn interval(&self, headroom: u64) -> u64 {
        let now = sys::now_ns();
        let grace = grace(self.engine.least_limit());
        let until_full = ((headroom + grace) as u128 * 1_000_000_000 / TOUCH_BYTES_PER_SECOND as u128) as u64;
        let idle_ns = now.saturating_sub(self.idle_since_ns);
        if idle_ns > 1_000_000_000 {
            return until_full.clamp(10_000_000, 4 * INTERVAL_MAX_NS);
        }
        if self.engine.is_engaged() {
            // New mappings are touched at full speed until they are registered.
            let interval = (until_full / 2).clamp(INTERVAL_MIN_NS / 2, INTERVAL_MIN_NS * 2);
            return interval.max((idle_ns / IDLE_SHARE).min(INTERVAL_IDLE_MAX_NS));
        }
        until_full.clamp(INTERVAL_MIN_NS, INTERVAL_MAX_NS)
    }

    /// Prepares staging and says that from now on memory is registered. Once per process.
    fn engage(&mut self) {
        let engine = self.engine;
        if engine.is_engaged() {
            return;
        }
        let limit = engine.least_limit();
        let places = (limit / 8 / PIECE as u64)
            .clamp(2 * HUGE_PAGE_BERTHS, crate::staging::ring::BERTHS_MAX as u64)
            / HUGE_PAGE_BERTHS
            * HUGE_PAGE_BERTHS;
        let bytes = places as usize * PIECE;
        let Some(base) = engine.arena.move_target(bytes) else { return };
        if engine.userfault().register(base.as_ptr() as usize, bytes, Watch::MoveTarget).is_err() {
            return;
        }
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
        unsafe { &mut *engine.staging.get() }.install(base, places);
        engine.around.set_room(limit / PAGE as u64);
        engine.make_pool(limit);
        let pages = if engine.affords_huge_pages() { StorePages::Together } else { StorePages::Singly };
        engine.arena.let_store_come(pages);
        if !engine.embedded.is_on() {
            let control = engine.descriptors.control.load(Relaxed);
            link::tell(control, Kind::HoldUserfault, [0; 3], Some(engine.userfault().0));
        }
        engine.engaged.store(1, Release);
    }
}

impl Engine {
    /// Is there room for a copy of everything that this process shares, the group being charged `total` bytes? Then nobody who
    /// writes to it needs to wait.
    fn has_room_for_copies(&self, total: u64, marks: Watermarks) -> bool {
        total + self.member().evictable_bytes.load(Relaxed) < marks.high
    }
}

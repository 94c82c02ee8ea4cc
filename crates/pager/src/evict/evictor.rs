//! The evictor: the one thread of a process that takes memory out of it.
//!
//! It sleeps until the process grows, a thread asks for memory, or its interval is over; measures;
//! registers memory when the group comes near its limit; and evicts down to the low mark. A batch
//! runs under the `locks.gate`, so a fork finds it between two batches.

use crate::engine::Engine;
use crate::engine::arena::StorePages;
use crate::engine::fork_state::Protection;
use crate::engine::placement::EvictorPlacement;
use crate::engine::pool::Prepared;
use crate::engine::threads::Life;
use crate::evict::clock::Clock;
use crate::evict::hand_over::HandoverPace;
use crate::evict::idle::LastRound;
use crate::evict::measure::IDLE_NS;
use crate::evict::page_out::AdviceFollowed;
use crate::evict::registration::Memory;
use crate::evict::sharing::ToProtect;
use crate::evict::shortage::Shortage;
use crate::evict::survey::{SharingSurvey, Survey};
use crate::evict::sweep::{self, Sweep};
use crate::evict::tiers::Tiers;
use crate::evict::upkeep::Upkeep;
use crate::evict::wanted::Wanted;
use crate::kernel::futex::{self, Guard, Sharing};
use crate::kernel::sys;
use crate::kernel::uffd::Watch;
use crate::staging::batch::Batch;
use crate::staging::ring::HUGE_PAGE_BERTHS;
use crate::units::{PAGE, PIECE};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_devices::Scratch;
use folioswap_group::decisions::{GroupState, Scope};
use folioswap_group::nested::Bound;
use folioswap_group::protocol::{Kind, OutOfMemory};
use folioswap_policy::reclaim::crawl::Fill;
use folioswap_policy::reclaim::standstill::{nothing_is_evictable, swappable_bytes};
use folioswap_policy::reclaim::turns::PATIENCE_NS;
use folioswap_policy::reclaim::watermarks::{Watermarks, grace};

/// The most bytes per second that threads can touch for the first time here.
const TOUCH_BYTES_PER_SECOND: u64 = 10 << 30;

const INTERVAL_MIN_NS: u64 = 1_000_000;

const INTERVAL_MAX_NS: u64 = 20_000_000;

/// The sleep of the evictor of a group that is ending.
const ENDING_NS: u64 = 100_000_000;
/// How long the process counts as empty after a round of the clock that found nothing to take.
pub(crate) const BARREN_NS: u64 = 50_000_000;

/// The less a process does, the less often it is looked at: after this part of the time for which
/// it has done nothing.
const IDLE_SHARE: u64 = 16;

const INTERVAL_IDLE_MAX_NS: u64 = 4_000_000;

/// The evictor's own state. A forked child begins with a new one, because nothing in it is needed
/// to find a page again.
pub(crate) struct Evictor {
    pub(crate) engine: &'static Engine,
    pub(crate) scratch: Scratch,
    pub(crate) clock: Clock,
    pub(crate) survey: Survey,
    pub(crate) sharing: SharingSurvey,
    pub(crate) tiers: Tiers,
    pub(crate) shortage: Shortage,
    pub(crate) upkeep: Upkeep,
    pub(crate) advice: AdviceFollowed,
    pub(crate) handover: HandoverPace,
    pub(crate) placement: EvictorPlacement,
}

/// The next step after a pass.
enum Pass {
    /// Another pass at once.
    Again,
    /// A sleep of at most so many nanoseconds.
    Sleep(u64),
}

/// The tightest limit at the beginning of a pass: its watermarks, and the bytes charged to it.
#[derive(Clone, Copy)]
struct View {
    bound: Bound,
    marks: Watermarks,
    total: u64,
}

/// The evictor thread.
///
/// # Safety
/// `argument` is the engine's address; the handler has joined the group; this is the only evictor
/// of the process.
pub(crate) unsafe extern "C" fn run(argument: usize) -> ! {
    sys::name_thread(c"pager-evictor");
    sys::raise_priority();
    // SAFETY: by contract.
    let engine: &'static Engine = unsafe { &*(argument as *const Engine) };
    engine.confine();
    Evictor::live(engine);
    // Only the evictor of an embedder ends.
    sys::kill_self()
}

impl Evictor {
    /// The work of the calling thread until an embedder's engine is stopped.
    pub(crate) fn live(engine: &'static Engine) {
        engine.threads.evictor.store(sys::gettid(), Release);
        let mut evictor = Self::new(engine);
        evictor.note_devices_below_store();
        let mut last = None;
        loop {
            let wake = &engine.member().wake;
            let observed = wake.load(Relaxed);
            engine.end_after_exec();
            if let Some(rest_ns) = last.and_then(|last| evictor.may_sleep_on(last)) {
                futex::wait(wake, observed, rest_ns, Sharing::Shared);
                continue;
            }
            let interval_ns = evictor.round();
            last = Some(LastRound::new(observed, interval_ns));
            if engine.embedded.is_stopping() {
                return;
            }
            if engine.life() == Life::Starting {
                // The program may go on only now: everything that it touches from here on is
                // counted.
                engine.threads.life.store(Life::Running as u32, Release);
                let everybody = i32::MAX as u32;
                let _ = rustix::thread::futex::wake(
                    &engine.threads.life,
                    rustix::thread::futex::Flags::PRIVATE,
                    everybody,
                );
            }
            futex::wait(wake, observed, interval_ns, Sharing::Shared);
        }
    }

    /// An evictor that has done nothing yet.
    pub(crate) fn new(engine: &'static Engine) -> Self {
        Evictor {
            engine,
            scratch: Scratch::new(),
            clock: Clock::new(engine),
            survey: Survey::new(),
            sharing: SharingSurvey::new(),
            tiers: Tiers::new(engine),
            shortage: Shortage::new(),
            upkeep: Upkeep::new(),
            advice: AdviceFollowed::new(),
            handover: HandoverPace::new(),
            placement: EvictorPlacement::new(),
        }
    }

    /// Measures, and evicts as long as it must. Returns how long it may sleep, in nanoseconds.
    fn round(&mut self) -> u64 {
        loop {
            self.let_pass();
            if let Pass::Sleep(rest_ns) = self.pass() {
                return rest_ns;
            }
        }
    }

    /// One pass of a round: new memory is taken in, and one batch leaves, where one is wanted.
    fn pass(&mut self) -> Pass {
        let gate = self.engine.locks.gate.lock();
        self.engine.apply_all_requests();
        self.engine.follow_demand();
        self.measure();
        self.follow_devices();
        let bound = self.engine.bound();
        let view = View { bound, marks: Watermarks::of(bound.limit), total: bound.charge };
        if self.engine.decisions().state() == GroupState::Ending {
            return Pass::Sleep(ENDING_NS);
        }
        if self.engine.embedded.is_stopping() {
            return Pass::Sleep(0);
        }
        self.take_in(view);
        // It comes after the look at the mappings, so that new memory does not wait longer than it
        // must.
        self.validate_if_due();
        if !self.engine.is_engaged() {
            self.decline_advice();
            return Pass::Sleep(self.interval(view.marks.engage.saturating_sub(view.total)));
        }
        self.protect_if_wanted(view.total, view.marks);
        self.compact();
        self.give_back_clusters();
        let demoted = self.move_on(view);
        self.prepare_huge_page(view);
        let wanted = self.wanted();
        // Where memory is short, advice and reclaim take turns.
        let may_advise = wanted == Wanted::Nothing || !self.advice.followed;
        let advised = if may_advise { self.follow_advice() } else { None };
        self.advice.followed = advised.is_some();
        if let Some(batch) = advised {
            self.end_batch(gate, batch, bound);
            return Pass::Again;
        }
        if wanted == Wanted::Nothing && self.engine.decisions().evicts_all() {
            let (batch, sweep) = self.sweep();
            self.end_batch(gate, batch, bound);
            return if sweep == Sweep::Done { Pass::Sleep(sweep::REST_NS) } else { Pass::Again };
        }
        match wanted {
            Wanted::Nothing => self.rest(gate, view, demoted),
            Wanted::Later => self.let_others_give(gate, view),
            Wanted::Ahead | Wanted::Now => self.reclaim(gate, view, wanted, demoted),
        }
    }

    /// Registers new memory where the group is near its limit, and follows an embedder's command.
    /// The caller holds the gate.
    fn take_in(&mut self, view: View) {
        let engine = self.engine;
        // Room is made for announced memory, but nobody waits as if it were there.
        let claimed = view.total.saturating_add(engine.group().announced_bytes());
        if claimed >= view.marks.engage {
            engine.segment().header.near_limit_ns.store(sys::now_ns(), Relaxed);
        }
        let scan_wanted = engine.mappings.scan_wanted.load(Acquire) != 0;
        let is_embedded = engine.embedded.is_on();
        let is_engaged = engine.is_engaged() || is_embedded || engine.decisions().evicts_all();
        if claimed >= view.marks.engage || scan_wanted || is_engaged {
            self.engage();
            self.register_new(if view.total >= view.marks.low { Memory::Short } else { Memory::Ample });
        }
        if is_embedded {
            engine.follow_command();
        }
    }

    /// Moves pages on from one device to the next: those beyond the store's share, and those on a
    /// device that is taken out of use. Returns how many. The caller holds the gate.
    fn move_on(&mut self, view: View) -> u64 {
        let View { total, marks, .. } = view;
        // Demotion waits for a disk. At the limit, and while memory is touched that is too new to
        // be looked at, taking pages out is more urgent: the store's excess goes on later.
        let with_missing = || total.saturating_add(self.engine.missing_huge_page_bytes());
        let is_short = total >= marks.low || with_missing() >= marks.low;
        let may_demote = is_short && total < marks.limit && sys::now_ns() >= self.survey.growing_until_ns;
        let demoted = if may_demote { self.demote_excess() } else { 0 };
        let memory = if total < marks.limit { Memory::Ample } else { Memory::Short };
        demoted + self.move_off_leaving(memory)
    }

    /// Has a huge page ready where there is room for one. The caller holds the gate.
    fn prepare_huge_page(&mut self, view: View) {
        let room = view.marks.low.saturating_sub(view.total).max(self.shortage.given_back);
        if self.engine.prepare_huge_page(room) == Prepared::FromSystem {
            self.shortage.given_back = 0;
        }
    }

    /// Nothing is to leave: the pause is used for recompression, and for room that only the store
    /// can give.
    fn rest(&mut self, gate: Guard<'_>, view: View, demoted: u64) -> Pass {
        let View { total, marks, bound } = view;
        if total < marks.limit {
            self.shortage.desperate = false;
        }
        let is_near_limit = (marks.engage..marks.limit).contains(&total);
        let is_quiet = is_near_limit && demoted == 0 && sys::now_ns() >= self.survey.growing_until_ns;
        let rest_ns = if is_quiet { self.recompress_idle() } else { u64::MAX };
        self.let_gone_go(if total < marks.low { Memory::Ample } else { Memory::Short });
        drop(gate);
        self.after(Batch::default(), bound);
        // Where no process can take anything out of the program, the stored part may be demoted to
        // make room. A round that just found nothing has tried that already, so it looks again only
        // in a while.
        let is_barren = sys::now_ns() < self.shortage.barren_until_ns;
        let last_resort =
            total >= marks.limit && !is_barren && nothing_is_evictable(self.engine.group(), bound.group);
        if demoted > 0 || last_resort && self.demote() > 0 {
            return Pass::Again;
        }
        self.clock.forget_regions();
        let rest_ns = rest_ns.min(self.leaving_rest_ns());
        Pass::Sleep(self.interval(marks.limit.saturating_sub(total)).min(rest_ns))
    }

    /// Other members are to give first: this one looks again soon, and goes on where it was.
    fn let_others_give(&mut self, gate: Guard<'_>, view: View) -> Pass {
        drop(gate);
        self.after(Batch::default(), view.bound);
        Pass::Sleep(PATIENCE_NS)
    }

    /// Takes one batch out, and decides what follows from an empty one.
    fn reclaim(&mut self, gate: Guard<'_>, view: View, wanted: Wanted, demoted: u64) -> Pass {
        self.shortage.reason = wanted;
        // A liberty that the last shortage gave is not given to this one.
        self.shortage.desperate &= wanted == Wanted::Now;
        let batch = self.evict_batch();
        self.end_batch(gate, batch, view.bound);
        if batch.isolated + batch.folios > 0 || batch.event_pending {
            return Pass::Again;
        }
        if wanted == Wanted::Ahead {
            self.give_up_headroom();
            self.clock.forget_regions();
            return Pass::Sleep(self.interval(view.marks.limit.saturating_sub(view.total)));
        }
        if batch.shared > 0 && !self.shortage.desperate {
            self.shortage.desperate = true;
            return Pass::Again;
        }
        if demoted > 0 || self.demote() > 0 {
            return Pass::Again;
        }
        // There is nothing here to give: the others give, and this process looks again in a while.
        self.shortage.barren_until_ns = sys::now_ns() + BARREN_NS;
        self.clock.forget_regions();
        Pass::Sleep(INTERVAL_MIN_NS)
    }

    /// Gives the gate back after a batch, and lets the handler read an event that stood in the way.
    fn end_batch(&mut self, gate: Guard<'_>, batch: Batch, bound: Bound) {
        drop(gate);
        self.after(batch, bound);
        if batch.event_pending {
            rustix::thread::sched_yield();
        }
    }

    /// Lets a fork that is being prepared go first; the memory that it will share is protected
    /// before it does.
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

    /// Protects pages that a fork left unprotected, once there is no room for copies of all of
    /// them. The caller holds the gate.
    fn protect_if_wanted(&mut self, total: u64, marks: Watermarks) {
        let engine = self.engine;
        if engine.fork.protection() == Protection::Unprotected
            && !engine.fork.is_preparing()
            && !engine.has_room_for_copies(total, marks)
        {
            // The state is set before the pages are protected: a child by a bare clone that the
            // handler adopts meanwhile resets it to `Unprotected`, and its pages are protected in
            // the next round.
            engine.fork.set_protection(Protection::Protected);
            engine.protect_registered(ToProtect::Shared);
        }
    }

    /// Draws the consequences of a batch that began under this bound: reports progress, and the end
    /// of it.
    fn after(&mut self, batch: Batch, bound: Bound) {
        let (total, limit) = (bound.charge, bound.limit);
        let (group, me) = (self.engine.group(), self.engine.member());
        let freed = batch.written * PAGE as u64;
        let _ = me
            .reclaim_request_bytes
            .fetch_update(Relaxed, Relaxed, |asked| Some(asked.saturating_sub(freed)));
        if freed > 0 {
            futex::post(&group.segment.header.charge_sank, Sharing::Shared);
        }
        let (sight, now) = (self.shortage.standstill.look(group, bound, freed), sys::now_ns());
        let certain = total.min(group.certain_charge_within(bound.group));
        let stored = match group.decisions.scope() {
            Scope::Total => self.engine.stored_by(bound.group),
            // There stored pages are no part of the charge.
            Scope::Resident => 0,
        };
        let swappable = swappable_bytes(group, bound.group);
        let crawls = self.shortage.standstill.crawls(Fill::of(limit, certain, swappable, stored), now);
        if self.shortage.standstill.is_final(sight, now) || crawls {
            // The limit is filled either by pages that no device takes any more, or by memory that
            // never could be swapped.
            let stored = self.engine.space.mm_stat().mem_used_total;
            let full = batch.stuck || self.tiers.devices_full || stored > limit / 8;
            let reason = if full { OutOfMemory::SwapFull } else { OutOfMemory::Unmanaged };
            self.engine.tell(Kind::OutOfMemory, [reason as u64, total, limit], None);
        }
    }

    /// The time in which the fastest first touches could use up `headroom` and the permitted
    /// excess.
    fn interval(&self, headroom: u64) -> u64 {
        let now = sys::now_ns();
        let grace = grace(self.engine.least_limit());
        let until_full =
            (headroom.saturating_add(grace) as u128 * 1_000_000_000 / TOUCH_BYTES_PER_SECOND as u128) as u64;
        let idle_ns = self.survey.idle_ns(now);
        if idle_ns > IDLE_NS {
            return until_full.clamp(10_000_000, 4 * INTERVAL_MAX_NS);
        }
        if self.engine.is_engaged() {
            // New mappings are touched at full speed until they are registered.
            let interval = (until_full / 2).clamp(INTERVAL_MIN_NS / 2, INTERVAL_MIN_NS * 2);
            return interval.max((idle_ns / IDLE_SHARE).min(INTERVAL_IDLE_MAX_NS));
        }
        until_full.clamp(INTERVAL_MIN_NS, INTERVAL_MAX_NS)
    }

    /// Prepares staging and says that memory is registered from now on. Once per process.
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
        self.staging_mut().install(base, places);
        engine.around.set_room(limit / PAGE as u64);
        engine.make_pool(limit);
        engine.hang_bell();
        let pages = if engine.affords_huge_pages() { StorePages::Together } else { StorePages::Singly };
        engine.arena.let_store_come(pages);
        if !engine.embedded.is_on() {
            engine.tell(Kind::HoldUserfault, [0; 3], Some(engine.userfault().0));
        }
        engine.mappings.engaged.store(1, Release);
    }
}

impl Engine {
    /// Whether there is room for a copy of everything that this process shares, the group being
    /// charged `total` bytes. Then no thread that writes to a shared page needs to wait.
    fn has_room_for_copies(&self, total: u64, marks: Watermarks) -> bool {
        total.saturating_add(self.member().evictable_bytes.load(Relaxed)) < marks.high
    }
}

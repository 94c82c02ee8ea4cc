//! The evictor: the one thread of a process that takes memory out of it.
//!
//! It sleeps until the process grows, somebody asks for memory, or its interval is over; measures; registers memory when
//! the group comes near its limit; and evicts down to the low mark. A batch runs under the `gate`, so a fork finds it
//! between two batches.

use crate::account::{
    ProcessSize, Watermarks, field_bytes, minor_faults, own_share, parse_statm, read_proc, read_proc_path,
};
use crate::demote::Run;
use crate::engine::{Engine, Life};
use crate::futex::{self, Sharing};
use crate::isolate::{Pages, Refused};
use crate::link;
use crate::maps::{self, MappingFilter};
use crate::pagemap;
use crate::staging::{FOLIO, FOLIO_PAGES, SEGMENT_FOLIOS};
use crate::sys;
use crate::uffd::Watch;
use crate::write_back::{Stuck, Tier};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_core::page_table::PAGE;
use folioswap_core::space::Incompressible;
use folioswap_devices::Scratch;
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{CLUSTERS_PER_MESSAGE, Kind, Message, OutOfMemory};
use folioswap_group::segment::{GroupState, Scope};
use rustix::fd::BorrowedFd;
use rustix::mm::{Advice, madvise};

/// Folios isolated in one batch.
const BATCH_FOLIOS: usize = 8;
/// Clusters asked for at a time: 32 MiB.
const CLUSTERS_WANTED: u64 = 16;
/// Bytes per second that threads here can touch for the first time, at most.
const TOUCH_BYTES_PER_SECOND: u64 = 10 << 30;
const INTERVAL_MIN_NS: u64 = 1_000_000;
const INTERVAL_MAX_NS: u64 = 20_000_000;
/// How long the group may be over its limit without any progress anywhere before it is out of memory.
const STUCK_NS: u64 = 3_000_000_000;
/// After a round of the clock that found nothing to take, the process counts as empty for this long.
const BARREN_NS: u64 = 50_000_000;
/// An address space that grew by this much is looked at without delay.
const GROWTH_BYTES_MIN: u64 = 1 << 20;
/// Pages that a round of demotion moves.
const DEMOTED_AT_ONCE: u64 = 512;
/// Most pieces looked at in one batch, so that a fork does not wait long.
const BATCH_PIECES: usize = 4096;

/// The evictor's own state; lost without harm at a fork.
pub(crate) struct Evictor {
    engine: &'static Engine,
    hand: usize,
    regions: [pagemap::Region; 64],
    region_next: usize,
    region_count: usize,
    scratch: Scratch,
    text: [u8; 16 << 10],
    size: ProcessSize,
    scanned_size: u64,
    scan_next_ns: u64,
    slow_next_ns: u64,
    shmem: u64,
    fork_discount: u64,
    discount_at_rollup: u64,
    faults_at_rollup: u64,
    rollup_next_ns: u64,
    rollup_soonest_ns: u64,
    idle_since_ns: u64,
    faults_seen: u64,
    served_at_progress: u64,
    last_progress_ns: u64,
    clusters_full: bool,
    reclaiming: bool,
    wraps: u64,
    desperate: bool,
    demote_hand: usize,
    run: Run,
    barren_until_ns: u64,
}

/// What one batch achieved.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    isolated: u64,
    written: u64,
    shared: u64,
    event_pending: bool,
    stuck: bool,
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
    engine.evictor_thread.store(sys::gettid(), Release);
    let mut evictor = Evictor {
        engine,
        hand: 0,
        regions: [pagemap::EMPTY; 64],
        region_next: 0,
        region_count: 0,
        scratch: Scratch::new(),
        text: [0; 16 << 10],
        size: ProcessSize::default(),
        scanned_size: 0,
        scan_next_ns: 0,
        slow_next_ns: 0,
        shmem: 0,
        fork_discount: 0,
        discount_at_rollup: 0,
        faults_at_rollup: 0,
        rollup_next_ns: 0,
        rollup_soonest_ns: 0,
        idle_since_ns: sys::now_ns(),
        faults_seen: 0,
        served_at_progress: 0,
        last_progress_ns: sys::now_ns(),
        clusters_full: false,
        reclaiming: false,
        wraps: 0,
        desperate: false,
        demote_hand: 0,
        run: Run::new(),
        barren_until_ns: 0,
    };
    loop {
        let wake = &engine.member().wake;
        let observed = wake.load(Relaxed);
        let interval_ns = evictor.round();
        if engine.life() == Life::Starting {
            // Only now may the program go on: what it touches from here on is counted.
            engine.life.store(Life::Running as u32, Release);
            let everybody = i32::MAX as u32;
            let _ =
                rustix::thread::futex::wake(&engine.life, rustix::thread::futex::Flags::PRIVATE, everybody);
        }
        futex::wait(wake, observed, interval_ns, Sharing::Shared);
    }
}

impl Evictor {
    /// Measures, and evicts as long as it must. Returns how long it may sleep.
    fn round(&mut self) -> u64 {
        let segment = self.engine.segment();
        loop {
            let marks = Watermarks::of(segment.header.limit_bytes.load(Relaxed));
            self.engine.fork.let_pass();
            let gate = self.engine.gate.lock();
            self.engine.apply_requests();
            self.measure();
            let total = segment.charge_bytes();
            if segment.header.state.load(Relaxed) == GroupState::Ending as u32 {
                return 100_000_000;
            }
            if total >= marks.engage || self.engine.is_engaged() {
                self.engage();
                self.register_new(total >= marks.low);
            }
            if !self.engine.is_engaged() {
                return self.interval(marks.engage.saturating_sub(total));
            }
            let wanted = self.wanted(total, marks);
            if wanted == 0 {
                if total < marks.limit {
                    self.desperate = false;
                }
                drop(gate);
                self.after(Batch::default(), total, marks);
                self.forget_regions();
                return self.interval(marks.limit.saturating_sub(total));
            }
            let batch = self.evict_batch();
            drop(gate);
            self.after(batch, total, marks);
            if batch.event_pending {
                rustix::thread::sched_yield();
            }
            if batch.isolated == 0 && batch.written == 0 && !batch.event_pending {
                if batch.shared > 0 && !self.desperate {
                    self.desperate = true;
                    continue;
                }
                if self.demote() > 0 {
                    continue;
                }
                // Nothing here to give: let the others give, and look again in a while.
                self.barren_until_ns = sys::now_ns() + BARREN_NS;
                self.forget_regions();
                return INTERVAL_MIN_NS;
            }
        }
    }

    /// Before a sleep: the list of present pages will be old.
    fn forget_regions(&mut self) {
        (self.region_next, self.region_count) = (0, 0);
    }

    /// Bytes that this process should give up now.
    fn wanted(&mut self, total: u64, marks: Watermarks) -> u64 {
        let (segment, me) = (self.engine.segment(), self.engine.member());
        let asked = me.reclaim_request_bytes.load(Relaxed);
        if total <= marks.low {
            me.reclaim_request_bytes.store(0, Relaxed);
            self.reclaiming = false;
        }
        self.reclaiming |= total > marks.high || asked > 0;
        if !self.reclaiming || total <= marks.low {
            return 0;
        }
        let own = own_share(segment, me, total - marks.low, |member, bytes| {
            if member.reclaim_request_bytes.swap(bytes, Relaxed) == 0 {
                futex::post(&member.wake, Sharing::Shared);
            }
        });
        own.max(asked)
    }

    fn after(&mut self, batch: Batch, total: u64, marks: Watermarks) {
        let (segment, me) = (self.engine.segment(), self.engine.member());
        let freed = batch.written * PAGE as u64;
        let _ = me
            .reclaim_request_bytes
            .fetch_update(Relaxed, Relaxed, |asked| Some(asked.saturating_sub(freed)));
        if freed > 0 {
            futex::post(&segment.header.charge_sank, Sharing::Shared);
        }
        let now = sys::now_ns();
        // Evicting is no progress by itself: only when the group gets below its limit can a fault be served.
        let served = segment.faults_served();
        if total < marks.limit || served != self.served_at_progress {
            self.served_at_progress = served;
            self.last_progress_ns = now;
        } else if now - self.last_progress_ns > STUCK_NS {
            // What fills the limit: pages that no device takes any more, or what never could be swapped?
            let stored = self.engine.space.mm_stat().mem_used_total;
            let full = batch.stuck || stored > marks.limit / 8;
            let reason = if full { OutOfMemory::SwapFull } else { OutOfMemory::Unmanaged };
            let control = self.engine.descriptors.control.load(Relaxed);
            link::tell(control, Kind::OutOfMemory, [reason as u64, total, marks.limit], None);
            self.last_progress_ns = now;
        }
    }

    /// Reads the process's size, and what is derived from it.
    fn measure(&mut self) {
        let engine = self.engine;
        let now = sys::now_ns();
        let text = read_proc(engine.descriptors.statm.load(Relaxed), &mut self.text);
        if let Some(size) = parse_statm(text) {
            let faults = engine.figures().counter(Counter::MajorFaults)
                + engine.figures().counter(Counter::MinorFaults);
            if size.anonymous > self.size.anonymous + (256 << 10) || faults != self.faults_seen {
                self.idle_since_ns = now;
            }
            self.faults_seen = faults;
            self.size = size;
        }
        if now >= self.slow_next_ns {
            self.slow_next_ns = now + 100_000_000;
            let text = read_proc_path(c"/proc/self/status", &mut self.text);
            self.shmem = field_bytes(text, b"RssShmem:").unwrap_or(0);
            engine.epoch.store((now >> 30) as u32, Relaxed);
            // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
            let staging = unsafe { &*engine.staging.get() };
            engine.publish_gauges(self.size, staging.occupied() * FOLIO as u64);
            engine.figures().raise(Counter::PagerNanoseconds, sys::thread_cpu_ns());
        }
        if engine.fork.has_relatives() {
            self.measure_sharing(now);
        }
        let charge = engine.charge_of(self.size.anonymous) + self.own_shmem();
        let me = engine.member();
        me.charge_bytes.store(charge.saturating_sub(self.fork_discount), Relaxed);
        let has_some = engine.is_engaged() && now >= self.barren_until_ns;
        let evictable = if has_some { self.size.anonymous.saturating_sub(engine.own_bytes()) } else { 0 };
        me.evictable_bytes.store(evictable, Relaxed);
        me.active.store(u32::from(now - self.idle_since_ns < 1_000_000_000), Relaxed);
    }

    /// The program's shared memory, without the group's segment.
    fn own_shmem(&self) -> u64 {
        match self.engine.segment().scope() {
            Scope::Total => self.shmem.saturating_sub(64 << 10),
            Scope::Resident => 0,
        }
    }

    /// After a fork, pages shared with relatives are counted once, by proportional size. That is read as often as a tenth
    /// of the thread's time allows (a third when much has changed); in between, every minor fault may have made a page
    /// our own.
    fn measure_sharing(&mut self, now: u64) {
        let text = read_proc_path(c"/proc/self/stat", &mut self.text);
        let faults = minor_faults(text).unwrap_or(self.faults_at_rollup);
        let unshared = faults.saturating_sub(self.faults_at_rollup) * PAGE as u64;
        let due = if unshared > 4 << 20 { self.rollup_soonest_ns } else { self.rollup_next_ns };
        if now < due {
            self.fork_discount = self.discount_at_rollup.saturating_sub(unshared);
            return;
        }
        let text = read_proc_path(c"/proc/self/smaps_rollup", &mut self.text);
        let (resident, proportional) = (field_bytes(text, b"Anonymous:"), field_bytes(text, b"Pss_Anon:"));
        if let (Some(resident), Some(proportional)) = (resident, proportional) {
            self.discount_at_rollup = resident.saturating_sub(proportional);
            self.fork_discount = self.discount_at_rollup;
            self.faults_at_rollup = faults;
        }
        let done = sys::now_ns();
        self.rollup_next_ns = done + (10 * (done - now)).max(20_000_000);
        self.rollup_soonest_ns = done + 2 * (done - now);
    }

    /// Time in which the fastest first touches could use up `headroom` and what may be overshot.
    fn interval(&self, headroom: u64) -> u64 {
        let now = sys::now_ns();
        let grace = (8 << 20) + self.engine.segment().header.limit_bytes.load(Relaxed) / 40;
        let until_full = ((headroom + grace) as u128 * 1_000_000_000 / TOUCH_BYTES_PER_SECOND as u128) as u64;
        let idle_ns = now.saturating_sub(self.idle_since_ns);
        if idle_ns > 1_000_000_000 {
            return until_full.clamp(10_000_000, 4 * INTERVAL_MAX_NS);
        }
        if self.engine.is_engaged() {
            // New mappings are touched at full speed until they are registered.
            return (until_full / 2).clamp(INTERVAL_MIN_NS / 2, INTERVAL_MIN_NS * 2);
        }
        until_full.clamp(INTERVAL_MIN_NS, INTERVAL_MAX_NS)
    }

    /// Prepares staging and says that from now on memory is registered. Once per process.
    fn engage(&mut self) {
        let engine = self.engine;
        if engine.is_engaged() {
            return;
        }
        let limit = engine.segment().header.limit_bytes.load(Relaxed);
        let places = (limit / 8 / FOLIO as u64).clamp(4 * SEGMENT_FOLIOS, crate::staging::PLACES_MAX as u64)
            / SEGMENT_FOLIOS
            * SEGMENT_FOLIOS;
        let bytes = places as usize * FOLIO;
        let Some(base) = engine.arena.own_mapping(bytes) else { return };
        if engine.userfault().register(base.as_ptr() as usize, bytes, Watch::MoveTarget).is_err() {
            return;
        }
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
        unsafe { &mut *engine.staging.get() }.install(base, places);
        let control = engine.descriptors.control.load(Relaxed);
        link::tell(control, Kind::HoldUserfault, [0; 3], Some(engine.userfault().0));
        engine.engaged.store(1, Release);
    }

    /// Finds mappings that are not registered yet, when the address space has changed, as often as a twentieth of the
    /// thread's time allows (a fifth when memory is short).
    fn register_new(&mut self, short: bool) {
        let now = sys::now_ns();
        let grown = self.size.virtual_size.saturating_sub(self.scanned_size);
        let unchanged = self.size.virtual_size == self.scanned_size && now < self.scan_next_ns + 100_000_000;
        let wanted = self.engine.scan_wanted.swap(0, Acquire) != 0;
        if !wanted && grown < GROWTH_BYTES_MIN && (unchanged || now < self.scan_next_ns) {
            return;
        }
        self.scanned_size = self.size.virtual_size;
        let engine = self.engine;
        let mut filter = MappingFilter::new();
        // SAFETY: the descriptor is in the pager threads' table and stays open.
        let file = unsafe { BorrowedFd::borrow_raw(engine.descriptors.maps.load(Relaxed)) };
        let _ = maps::read(file, &mut self.text, |mapping| {
            if filter.can_be_managed(mapping) {
                let _events_wait = engine.move_lock.lock();
                engine.register_pieces(mapping.start, mapping.end);
            }
        });
        futex::post(&engine.scans, Sharing::Private);
        let cost = sys::now_ns() - now;
        self.scan_next_ns = sys::now_ns() + cost * if short { 4 } else { 20 };
    }

    /// Isolates some folios and writes as many back.
    fn evict_batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        // The inactive list: a sixteenth of the limit, shared by the members.
        let live =
            self.engine.segment().members().iter().filter(|member| member.is_live()).count().max(1) as u64;
        let wanted_waiting = self.staging().places() / 2 / live;
        let recycled_together = (wanted_waiting / 4).clamp(2, SEGMENT_FOLIOS);
        let wraps = self.wraps;
        for _ in 0..BATCH_PIECES {
            // One round that found nothing is enough; one that only cooled hot pages is followed by another.
            if batch.isolated >= (BATCH_FOLIOS * FOLIO_PAGES) as u64 || self.wraps >= wraps + 3 {
                break;
            }
            let Some((piece, present)) = self.next_piece() else { break };
            match self.take_piece(piece, present, &mut batch) {
                None => {}
                Some(Refused::EventPending) => {
                    batch.event_pending = true;
                    break;
                }
                Some(_) => break,
            }
        }
        let drain = batch.isolated == 0 && !batch.event_pending;
        for _ in 0..BATCH_FOLIOS {
            let staging = self.staging();
            let due = staging.waiting() > wanted_waiting
                || staging.places() - staging.occupied() < 2 * SEGMENT_FOLIOS;
            if staging.waiting() == 0 || !(due || drain) {
                break;
            }
            match self.write_back() {
                Ok(pages) => batch.written += pages,
                Err(()) => {
                    batch.stuck = true;
                    break;
                }
            }
        }
        let userfault = self.engine.userfault();
        let staging = self.staging();
        let least = if drain && staging.waiting() == 0 { 1 } else { recycled_together };
        staging.recycle(userfault, least);
        self.engine.figures().add(Counter::StolenBackground, batch.written);
        batch
    }

    #[allow(clippy::mut_from_ref, reason = "the ring is the evictor's, see Engine")]
    fn staging(&self) -> &mut crate::staging::Staging {
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections; each use ends before the next.
        unsafe { &mut *self.engine.staging.get() }
    }

    fn take_piece(&mut self, piece: usize, present: Pages, batch: &mut Batch) -> Option<Refused> {
        let engine = self.engine;
        engine.figures().add(Counter::ScannedBackground, present.count_ones() as u64);
        let block = engine.table.block_or_insert(piece, engine.arena)?;
        let wanted = engine.candidates(block, piece, present);
        if wanted == 0 {
            return None;
        }
        let first = engine.isolate(piece, wanted);
        batch.isolated += first.moved.count_ones() as u64;
        if first.refused.is_some() || first.busy == 0 {
            return first.refused;
        }
        // Shared after a fork, or pinned. What relatives share frees nothing when one of them gives it up, and costs a copy
        // in each: it goes only when nothing else is left. A write fault in our name gives this process a page of its
        // own; what is pinned stays as it is and is left alone.
        let mut ours: Pages = 0;
        for page in 0..FOLIO_PAGES {
            let address = piece + page * PAGE;
            let wanted = first.busy >> page & 1 != 0;
            let descriptor = engine.descriptors.pagemap.load(Relaxed);
            if wanted && (self.desperate || pagemap::is_exclusive(descriptor, address)) {
                // SAFETY: populating changes no contents.
                let _ = unsafe { madvise(address as *mut _, PAGE, Advice::LinuxPopulateWrite) };
                ours |= 1 << page;
            }
        }
        batch.shared += (first.busy & !ours).count_ones() as u64;
        if ours == 0 {
            return None;
        }
        let second = engine.isolate(piece, ours);
        batch.isolated += second.moved.count_ones() as u64;
        engine.figures().add(Counter::Unshared, second.moved.count_ones() as u64);
        engine.figures().add(Counter::Pinned, second.busy.count_ones() as u64);
        second.refused
    }

    /// The next 64 KiB with present pages under the clock's hand. `None` after one round without any.
    fn next_piece(&mut self) -> Option<(usize, Pages)> {
        let mut wrapped = false;
        loop {
            if self.region_next < self.region_count {
                return Some(self.piece_of_regions());
            }
            let next = {
                let _events_wait = self.engine.move_lock.lock();
                // SAFETY: the set is used under the move lock.
                unsafe { &*self.engine.registered.get() }.next(self.hand)
            };
            let Some(range) = next else {
                if wrapped {
                    return None;
                }
                wrapped = true;
                self.wraps += 1;
                self.hand = 0;
                continue;
            };
            let start = self.hand.max(range.start);
            let end = range.end.min(start.saturating_add(64 << 20));
            let pagemap = self.engine.descriptors.pagemap.load(Relaxed);
            match pagemap::present(pagemap, start, end, &mut self.regions) {
                Ok(scan) => {
                    self.region_count = scan.regions;
                    self.region_next = 0;
                    self.hand = if scan.end > start { scan.end } else { end };
                }
                Err(_) => self.hand = end,
            }
        }
    }

    fn piece_of_regions(&mut self) -> (usize, Pages) {
        let piece = self.regions[self.region_next].start as usize & !(FOLIO - 1);
        let mut present: Pages = 0;
        while self.region_next < self.region_count {
            let region = &mut self.regions[self.region_next];
            let start = region.start as usize;
            if start >= piece + FOLIO {
                break;
            }
            let end = (region.end as usize).min(piece + FOLIO);
            for page in (start - piece) / PAGE..(end - piece) / PAGE {
                present |= 1 << page;
            }
            if end < region.end as usize {
                region.start = end as u64;
                break;
            }
            self.region_next += 1;
        }
        (piece, present)
    }

    /// Writes the oldest folio back, to the compressed store while that is within its share of the limit, else to the
    /// file.
    fn write_back(&mut self) -> Result<u64, ()> {
        let engine = self.engine;
        let has_file = engine.space.has_file() && !self.clusters_full;
        let tier = if has_file && self.store_is_full() { Tier::File } else { Tier::Zram };
        let incompressible = if has_file { Incompressible::ToFile } else { Incompressible::Keep };
        match engine.write_back_oldest(&mut self.scratch, tier, incompressible) {
            Ok(pages) => Ok(pages),
            Err(Stuck::WantClusters) => {
                self.want_clusters();
                let tier = if self.clusters_full { Tier::Zram } else { tier };
                let incompressible = if self.clusters_full { Incompressible::Keep } else { incompressible };
                engine.write_back_oldest(&mut self.scratch, tier, incompressible).map_err(|_| ())
            }
            Err(Stuck::NoRoom) => {
                self.clusters_full = true;
                engine.write_back_oldest(&mut self.scratch, Tier::Zram, Incompressible::Keep).map_err(|_| ())
            }
        }
    }

    /// Nothing of the program is left to take: pages of the compressed store go on to the file. Returns how many.
    fn demote(&mut self) -> u64 {
        let engine = self.engine;
        if engine.segment().scope() == Scope::Resident || !engine.space.has_file() || self.clusters_full {
            return 0;
        }
        engine.fork.let_pass();
        let _gate = engine.gate.lock();
        let mut demoted = engine.demote(self.demote_hand, DEMOTED_AT_ONCE, &mut self.run);
        if demoted.wants_clusters {
            self.want_clusters();
            demoted = engine.demote(self.demote_hand, DEMOTED_AT_ONCE, &mut self.run);
        }
        self.demote_hand = demoted.hand;
        engine.space.trim();
        futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
        demoted.pages
    }

    /// In scope total the store is part of the limit: beyond half of it, what is evicted goes to the file.
    fn store_is_full(&self) -> bool {
        let segment = self.engine.segment();
        if segment.scope() == Scope::Resident {
            return false;
        }
        let used: u64 = segment
            .members()
            .iter()
            .filter(|member| member.is_live())
            .map(|member| member.figures.gauge(folioswap_group::counters::Gauge::MemUsedTotal))
            .sum();
        used > segment.header.limit_bytes.load(Relaxed) / 2
    }

    /// Asks the supervisor for room in the file device.
    fn want_clusters(&mut self) {
        let engine = self.engine;
        let control = engine.descriptors.control.load(Relaxed);
        let request =
            Message::new(Kind::WantClusters, [CLUSTERS_WANTED.min(CLUSTERS_PER_MESSAGE as u64), 0, 0]);
        let answer = link::send(control, &request, None).and_then(|()| link::receive(control));
        match answer {
            Ok((message, _)) if message.kind() == Some(Kind::Clusters) => {
                self.clusters_full = message.clusters().is_empty();
                for &number in message.clusters() {
                    engine.space.file_space().add(number);
                }
                // The answer proves that the supervisor knows of every fork we told it: its owner counts can be trusted.
                let owners = &engine.segment().file_cluster_owners;
                engine.space.file_space().unshare(|number| {
                    owners.get(number as usize).is_some_and(|count| count.load(Relaxed) == 1)
                });
            }
            _ => sys::kill_self(),
        }
    }
}

impl Engine {
    /// Registers what of a mapping is neither registered nor ours. Under the move lock.
    pub(crate) fn register_pieces(&self, start: usize, end: usize) {
        // SAFETY: the set is used under the move lock.
        let registered = unsafe { &mut *self.registered.get() };
        if registered.covers(start, end) {
            return;
        }
        // No piece of ours can appear in the range between the look and the registration.
        self.arena.with_pieces_fixed(|arena| {
            let mut from = start;
            while from < end {
                let (until, next) = match arena.next_piece(from) {
                    Some((piece_start, piece_end)) if piece_start < end => (piece_start, piece_end),
                    _ => (end, end),
                };
                if from < until && self.userfault().register(from, until - from, Watch::Missing).is_ok() {
                    // A full set leaves the range registered but unknown: its faults are served, it is never evicted.
                    let _ = registered.insert(from, until);
                }
                from = next;
            }
        });
    }
}

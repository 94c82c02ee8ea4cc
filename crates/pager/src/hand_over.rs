//! Single pages leave by the hand of the handler, on the processor of the thread whose faults it serves.
//!
//! A move invalidates TLBs: from another processor that takes ten times as long, and interrupts the thread. So where pages lie apart the
//! evictor plans a batch (which pages, by the clock) and sleeps, and the handler takes a row of it out now and then between two faults. The
//! evictor, meanwhile on a processor of its own, has the planning and the writing back. A batch in one go, by an evictor that comes over,
//! would stop the thread for half a millisecond (`docs/measurements.md`, *The longest waits of random touches*).
//!
//! Who holds the plan ([`Handover`]) is who isolates: the ring of staging is used in isolation by one thread at a time. It is offered under
//! the gate, and the evictor's again before that is given back.

use crate::batch::{BATCH_PAGES, Batch, SCATTERED_RUN, Scattered};
use crate::engine::Engine;
use crate::evictor::Evictor;
use crate::futex::{self, Sharing};
use crate::handler::Handler;
use crate::isolate::{Isolation, Refused};
use crate::row::{JOINED_PIECES, ROW_PIECES, Row};
use crate::staging::FOLIO;
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use folioswap_core::reclaim::handover::{Handover, Rest};

/// Most rows of a plan.
const ROWS: usize = BATCH_PAGES as usize;
/// Most pieces of a row that leave between two faults.
const PIECES: usize = JOINED_PIECES / 2;
/// A plan of fewer moves is not worth the evictor's sleep.
const MOVES_MIN: u64 = 16;
/// As long as memory is not short, so many pages leave for one that comes.
const PAGES_OUT: u64 = 4;
/// Pages that come before the first row of a plan leaves: by then the evictor, who has just offered it, sleeps, and no move interrupts it.
const PAGES_BEFORE: u64 = 2;
/// A plan with which nobody goes on for so long is done by the evictor.
const STALLED_NS: u64 = 500_000;
/// So is what is left of one after this: the evictor must see soon what the program maps and touches besides.
const LATE_NS: u64 = 2_000_000;
/// For how long no plan is offered after one with which nobody began: at first, and at most, where that happens again and again.
const DECLINED_NS: u64 = 1_000_000;
const DECLINED_MOST_NS: u64 = 64_000_000;
/// Attempts of a row that an event stands in the way of.
const ATTEMPTS: u32 = 4;

/// What is to leave, and whose it is. All-zero is valid: nothing is offered.
#[repr(C)]
pub(crate) struct Plans {
    /// [`Handover`]; also a futex.
    word: AtomicU32,
    /// Counts the rows that the handler took out.
    rows_taken: AtomicU32,
    plan: UnsafeCell<Plan>,
}

// SAFETY: the plan is used by who the word says.
unsafe impl Sync for Plans {}

/// Rows that are to leave, and what became of them.
struct Plan {
    rows: [Row; ROWS],
    /// Those that nobody has begun.
    first: usize,
    end: usize,
    /// Moves that all of them take, at most.
    moves: u64,
    /// What an event stood in the way of, and how often.
    again: Row,
    attempts: u32,
    /// What could not be moved of the row that was begun last: shared, or pinned.
    busy: Row,
    done: Batch,
    /// There was no room, or the event is still there: what is left stays where it is.
    is_refused: bool,
}

impl Plan {
    fn reset(&mut self) {
        (self.first, self.end, self.moves) = (0, 0, 0);
        (self.again, self.attempts, self.busy) = (Row::default(), 0, Row::default());
        (self.done, self.is_refused) = (Batch::default(), false);
    }

    /// What nobody has begun.
    fn rest(&self) -> &[Row] {
        &self.rows[self.first..self.end]
    }

    /// Its next part.
    fn take(&mut self, places: usize) -> Option<Row> {
        if !self.again.is_empty() {
            return Some(core::mem::take(&mut self.again));
        }
        let row = self.rows[..self.end].get_mut(self.first)?;
        let part = row.take(places.min(PIECES));
        self.first += usize::from(row.is_empty());
        part
    }

    /// Takes its next part out of the program. Under the gate, by who holds the plan.
    fn go_on(&mut self, engine: &Engine) -> Rest {
        // SAFETY: whoever holds the plan isolates.
        let places = unsafe { &*engine.staging.get() }.places_in_a_row();
        if let Some(part) = self.take(places) {
            // A thread may have begun since.
            engine.apply_requests();
            let part = part.among(|number| !engine.kept_pages(part.start() + number * FOLIO));
            let done = engine.isolate_row(&part);
            self.note(&part, &done);
        }
        let has_more = !self.again.is_empty() || !self.rest().is_empty();
        if has_more && !self.is_refused && self.busy.is_empty() { Rest::Some } else { Rest::None }
    }

    fn note(&mut self, part: &Row, done: &[Isolation; ROW_PIECES]) {
        for isolation in done {
            self.done.isolated += u64::from(isolation.moved.count_ones());
            self.done.moves += isolation.moves;
        }
        if done.iter().any(|isolation| isolation.busy != 0) {
            self.busy = part.among(|number| done[number].busy);
        }
        match done.iter().find_map(|isolation| isolation.refused) {
            // Its reader is who holds the plan, and goes on with it then.
            Some(Refused::EventPending) if self.attempts < ATTEMPTS => {
                self.attempts += 1;
                self.again = part.among(|number| !(done[number].moved | done[number].busy));
            }
            Some(Refused::EventPending) => (self.is_refused, self.done.event_pending) = (true, true),
            Some(Refused::NoSlots | Refused::StagingFull) => self.is_refused = true,
            // It is another mapping now.
            Some(Refused::Gone) | None => self.attempts = 0,
        }
    }
}

impl Plans {
    fn load(&self) -> Handover {
        Handover::from_bits(self.word.load(Acquire))
    }

    /// Is there one for whoever comes first?
    pub(crate) fn are_offered(&self) -> bool {
        self.load() == Handover::Offered
    }

    /// Exchanges the word for what `next` makes of it. False: that is nothing.
    fn update(&self, next: impl Fn(Handover) -> Option<Handover>) -> bool {
        let bits = |bits| next(Handover::from_bits(bits)).map(Handover::bits);
        self.word.fetch_update(AcqRel, Acquire, bits).is_ok()
    }

    /// Puts the plan down, and says so where the evictor has to go on.
    fn put_down(&self, rest: Rest) {
        self.update(|word| word.put_down(rest));
        if rest == Rest::None {
            futex::wake(&self.word, Sharing::Private);
        }
    }

    /// Nobody takes it now: it is the evictor's again. Any thread.
    fn decline(&self) {
        if self.update(Handover::decline) {
            futex::wake(&self.word, Sharing::Private);
        }
    }

    /// For a forked child: nobody plans yet.
    pub(crate) fn forget(&self) {
        self.word.store(Handover::Kept.bits(), Relaxed);
    }

    /// Waits until the plan is done, or declined, or nobody goes on with it; afterwards it is the caller's.
    fn await_return(&self) {
        let (mut seen, until_ns) = (self.rows_taken.load(Relaxed), sys::now_ns() + LATE_NS);
        loop {
            futex::wait(&self.word, Handover::Offered.bits(), STALLED_NS, Sharing::Private);
            // The word first: it makes the count current.
            let word = self.load();
            let taken = self.rows_taken.load(Relaxed);
            match word {
                Handover::Offered if taken == seen || sys::now_ns() >= until_ns => break,
                Handover::Offered => {}
                Handover::Taken => rustix::thread::sched_yield(),
                Handover::Returned | Handover::Kept => break,
            }
            seen = taken;
        }
        while !self.update(Handover::withdraw) {
            rustix::thread::sched_yield();
        }
    }
}

impl Engine {
    /// Has the evictor look at once: after the limit was changed, for example, or where a thread waits for it. It sleeps, or waits for its plan to be
    /// done, which it takes back then. Cost: a system call, two where a plan is on offer.
    pub fn wake_evictor(&self) {
        futex::post(&self.member().wake, Sharing::Shared);
        self.plans.decline();
    }
}

impl Evictor {
    /// Is somebody there who would take a plan, and nothing that the evictor has to look at meanwhile?
    pub(crate) fn may_hand_over(&self) -> bool {
        let (engine, now) = (self.engine, sys::now_ns());
        let is_wanted = engine.scan_wanted.load(Relaxed) != 0 || engine.evictor_waits.load(Relaxed) != 0;
        now >= self.declined_until_ns && now >= self.growing_until_ns && !is_wanted
    }

    /// Plans to take a row out, in a batch of which something may be planned. False: it has to leave at once, since the handler would gain
    /// nothing. The evictor's, with nothing offered.
    pub(crate) fn plan(&mut self, row: &Row, batch: &mut Batch) -> bool {
        let Some(planned) = &mut batch.planned else { return false };
        let moves = u64::from(row.moves());
        let is_dense = row.pages() >= SCATTERED_RUN * moves;
        if row.is_whole() || moves == 0 || is_dense && self.scattered == Scattered::No {
            return false;
        }
        // SAFETY: nothing is offered.
        let plan = unsafe { &mut *self.engine.plans.plan.get() };
        if *planned == 0 {
            plan.reset();
        }
        let Some(place) = plan.rows.get_mut(plan.end) else { return false };
        *place = *row;
        plan.end += 1;
        plan.moves += moves;
        *planned += row.pages();
        true
    }

    /// Has what is planned taken out of the program: by the handler, which serves a thread on the CPU `faulting`, or as far as it does
    /// not, from here.
    pub(crate) fn hand_over(&mut self, faulting: u32, batch: &mut Batch) {
        if batch.planned.take().unwrap_or(0) == 0 {
            return;
        }
        let engine = self.engine;
        let plans = &engine.plans;
        // SAFETY: nothing is offered.
        let is_worth_it = unsafe { &*plans.plan.get() }.moves >= MOVES_MIN;
        if is_worth_it {
            plans.update(Handover::offer);
            if engine.is_at_limit() {
                // The handler may wait for just that.
                futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
            }
            plans.await_return();
        }
        // SAFETY: nothing is offered any more.
        let plan = unsafe { &mut *plans.plan.get() };
        batch.isolated += plan.done.isolated;
        batch.moves += plan.done.moves;
        batch.event_pending |= plan.done.event_pending;
        self.aging.note(0, plan.done.isolated);
        let is_left = !plan.rest().is_empty() || !plan.again.is_empty();
        let has_begun = plan.done.moves > 0;
        if has_begun || !is_left {
            self.declined_ns = 0;
        } else if is_worth_it {
            self.declined_ns = (2 * self.declined_ns).clamp(DECLINED_NS, DECLINED_MOST_NS);
            self.declined_until_ns = sys::now_ns() + self.declined_ns;
        }
        if plan.is_refused || !is_left && plan.busy.is_empty() {
            return;
        }
        if plan.done.isolated > 0 && plan.busy.is_empty() && !engine.is_at_limit() {
            // There is time: the next plan goes on. What the clock has found counts as found.
            self.aging.note(0, plan.rest().iter().chain([&plan.again]).map(Row::pages).sum());
            return;
        }
        let joined = is_worth_it && self.placement.join(faulting);
        let mut rows = [plan.busy, plan.again].into_iter().chain(plan.rest().iter().copied());
        rows.find(|row| self.take_row(*row, batch).is_some());
        if joined {
            self.placement.leave();
        }
    }
}

impl Handler {
    /// After faults were served: takes a row of what is planned out of the program, if one is due.
    pub(crate) fn take_out_planned(&mut self) {
        if !self.engine.plans.are_offered() {
            // Of one that is offered next, nothing is due before the evictor sleeps.
            self.pages_to_next_row = PAGES_BEFORE;
        } else if self.pages_to_next_row == 0 {
            self.take_out_row();
        }
    }

    /// So many pages have come into the program.
    pub(crate) fn note_came(&mut self, pages: u64) {
        self.pages_to_next_row = self.pages_to_next_row.saturating_sub(pages);
    }

    /// Takes a row of what is planned out of the program. False: nothing is planned, or it is not for the handler: beside several threads a move
    /// costs as much from here, and a fork is to find the evictor between two batches. Cost: some 2 µs a page, up to sixteen moves.
    pub(crate) fn take_out_row(&mut self) -> bool {
        let plans = &self.engine.plans;
        if self.reads.several_threads_fault() || self.engine.fork.is_preparing() {
            plans.decline();
            return false;
        }
        if !plans.update(Handover::take) {
            return false;
        }
        // SAFETY: taken.
        let plan = unsafe { &mut *plans.plan.get() };
        let before = plan.done.isolated;
        let rest = plan.go_on(self.engine);
        self.pages_to_next_row = (plan.done.isolated - before) / PAGES_OUT;
        plans.rows_taken.fetch_add(1, Relaxed);
        plans.put_down(rest);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;
    use crate::candidates::Candidates;
    use crate::isolate::{Pages, page_index};
    use crate::placement::NO_CPU;
    use crate::staging::FOLIO_PAGES;
    use crate::test_memory::{fill, map, moving_engine, word_at};
    use core::sync::atomic::AtomicBool;
    use folioswap_core::page::{PageState, PageWord};
    use folioswap_core::page_table::PAGE;
    use folioswap_devices::Page;
    use rustix::io::Errno;
    use rustix::mm::{Advice, madvise};

    /// Rows of one piece each, with a piece between them that stays.
    const ALONE: usize = 6;
    /// Which pages of each piece leave.
    const APART: Pages = 0x9249;

    fn handler(engine: &'static Engine) -> Handler {
        Handler::new(engine, Buffers::of(engine).expect("memory"))
    }

    /// The pieces that are to leave, filled and registered.
    fn memory(engine: &Engine) -> [usize; ALONE] {
        let start = map((2 * ALONE + 1) * FOLIO).next_multiple_of(FOLIO);
        let pieces = core::array::from_fn(|number| start + 2 * number * FOLIO);
        for piece in pieces {
            fill(piece);
            engine.table.block_or_insert(piece, engine.arena).expect("memory");
        }
        engine.register_pieces(start, start + 2 * ALONE * FOLIO);
        pieces
    }

    /// A batch in which so much is planned of each piece.
    fn planned(evictor: &mut Evictor, pieces: &[usize], wanted: Pages) -> Batch {
        let mut batch = Batch { planned: Some(0), ..Batch::default() };
        for &piece in pieces {
            assert!(evictor.plan(&Row::of(piece, Candidates { written: wanted, clean: 0 }), &mut batch));
        }
        let dense = Row::of(pieces[0], Candidates { written: 0xf, clean: 0 });
        assert!(!evictor.plan(&dense, &mut batch) && !evictor.plan(&Row::default(), &mut batch));
        assert_eq!(batch.planned, Some(pieces.len() as u64 * u64::from(wanted.count_ones())));
        batch
    }

    /// Each page is where it is to be, with its contents.
    fn check(engine: &Engine, pieces: &[usize], gone: Pages) {
        // SAFETY: nobody else uses the ring.
        let staging = unsafe { &*engine.staging.get() };
        for &piece in pieces {
            let block = engine.table.block(piece).expect("made");
            for page in 0..FOLIO_PAGES {
                let address = match block.word(page_index(piece) + page).state() {
                    PageState::Leaving(entry) if gone >> page & 1 != 0 => {
                        staging.address(engine.staging_place(entry).expect("it waits")) + page * PAGE
                    }
                    PageState::Present(_) if gone >> page & 1 == 0 => piece + page * PAGE,
                    state => panic!("{piece:x} {page}: {state:?}"),
                };
                assert_eq!(word_at(address), 7 + page as u64);
            }
        }
    }

    #[test]
    fn the_handler_takes_out_what_is_planned_between_faults() {
        let Some(engine) = moving_engine() else { return };
        let (pieces, mut handler, mut evictor) = (memory(engine), handler(engine), Evictor::new(engine));
        let mut batch = planned(&mut evictor, &pieces, APART);
        handler.take_out_planned();
        std::thread::scope(|scope| {
            let evictor = scope.spawn(|| {
                evictor.hand_over(NO_CPU, &mut batch);
                (batch, evictor.declined_until_ns)
            });
            while !engine.plans.are_offered() && !evictor.is_finished() {
                std::thread::yield_now();
            }
            // Not before the evictor sleeps, and then so many times as many pages as come.
            let (pages, mut came) = (u64::from(APART.count_ones()), 0);
            while engine.plans.are_offered() {
                handler.take_out_planned();
                handler.note_came(1);
                came += 1;
            }
            let (batch, declined_until_ns) = evictor.join().expect("no panic");
            assert_eq!((batch.isolated, batch.planned), (ALONE as u64 * pages, None));
            // Unless this thread stood still for so long that the evictor went on by itself (the group is at its limit of nothing).
            let by_handler = engine.plans.rows_taken.load(Relaxed);
            assert_eq!(declined_until_ns == 0, by_handler > 0);
            if by_handler == ALONE as u32 {
                assert_eq!(came, PAGES_BEFORE + (ALONE as u64 - 1) * (pages / PAGES_OUT) + 1);
            }
        });
        check(engine, &pieces, APART);
        assert!(!handler.take_out_row(), "nothing is offered any more");
    }

    #[test]
    fn what_nobody_takes_out_leaves_all_the_same() {
        let Some(engine) = moving_engine() else { return };
        let (pieces, mut evictor) = (memory(engine), Evictor::new(engine));
        let mut batch = planned(&mut evictor, &pieces, APART);
        evictor.hand_over(NO_CPU, &mut batch);
        assert_eq!(batch.isolated, ALONE as u64 * u64::from(APART.count_ones()));
        check(engine, &pieces, APART);
        assert_ne!(evictor.declined_until_ns, 0, "for a while batches leave at once");
        let mut nothing = Batch { planned: Some(0), ..Batch::default() };
        evictor.hand_over(NO_CPU, &mut nothing);
        assert_eq!(nothing.isolated, 0);
    }

    #[test]
    fn a_handler_of_several_threads_declines() {
        let Some(engine) = moving_engine() else { return };
        let (pieces, mut handler, mut evictor) = (memory(engine), handler(engine), Evictor::new(engine));
        [1, 2].into_iter().for_each(|thread| handler.reads.note_thread(thread));
        let mut batch = planned(&mut evictor, &pieces, APART);
        engine.plans.update(Handover::offer);
        assert!(!handler.take_out_row());
        assert_eq!(engine.plans.load(), Handover::Returned);
        engine.plans.update(Handover::withdraw);
        std::thread::scope(|scope| {
            let evictor = scope.spawn(|| {
                evictor.hand_over(NO_CPU, &mut batch);
                batch
            });
            while !evictor.is_finished() {
                handler.pages_to_next_row = 0;
                handler.take_out_planned();
            }
            assert_eq!(evictor.join().expect("no panic").isolated, 36);
        });
        assert_eq!(engine.plans.rows_taken.load(Relaxed), 0);
        check(engine, &pieces, APART);
    }

    /// What the kernel does not move is the evictor's to look at.
    #[test]
    fn what_was_busy_is_tried_again_by_the_evictor() {
        let Some(engine) = moving_engine() else { return };
        let (pieces, mut evictor) = (memory(engine), Evictor::new(engine));
        let mut batch = planned(&mut evictor, &pieces[..2], APART);
        // SAFETY: nothing is offered.
        let plan = unsafe { &mut *engine.plans.plan.get() };
        let row = Row::of(pieces[3], Candidates { written: APART, clean: 0 });
        let mut done = [Isolation::default(); ROW_PIECES];
        done[0] = Isolation { moved: APART & !1, moves: 6, busy: 1, ..Isolation::default() };
        plan.note(&row, &done);
        assert_eq!((plan.busy.start(), plan.busy.pages(), plan.done.isolated), (pieces[3], 1, 5));
        assert_eq!(plan.go_on(engine), Rest::None, "the handler goes no further");
        evictor.hand_over(NO_CPU, &mut batch);
        check(engine, &pieces[..2], APART);
        check(engine, &pieces[2..3], 0);
        check(engine, &pieces[3..4], 1);
        assert_eq!(batch.isolated, 12 + 5 + 1);
    }

    #[test]
    fn an_event_that_waits_is_read_and_the_row_goes_on() {
        let Some(engine) = moving_engine() else { return };
        let (pieces, mut handler, mut evictor) = (memory(engine), handler(engine), Evictor::new(engine));
        planned(&mut evictor, &pieces[..1], APART);
        engine.plans.update(Handover::offer);
        let given_up = pieces[ALONE - 1];
        let (was_there, is_offered) = std::thread::scope(|scope| {
            // Waits until its event is read.
            // SAFETY: nobody uses it.
            scope.spawn(move || unsafe { madvise(given_up as *mut _, PAGE, Advice::LinuxDontNeed) });
            while engine.userfault().check_registered(given_up) != Err(Errno::AGAIN) {}
            let was_there = handler.take_out_row();
            let is_offered = engine.plans.are_offered();
            handler.read_messages();
            (was_there, is_offered)
        });
        assert!(was_there && is_offered);
        check(engine, &pieces[..1], 0);
        assert!(handler.take_out_row());
        check(engine, &pieces[..1], APART);
        assert_eq!(engine.plans.load(), Handover::Returned);
    }

    /// Where there is time, what the handler has not come to is left for the next plan.
    #[test]
    fn below_the_limit_a_late_plan_is_given_up() {
        let Some(engine) = moving_engine() else { return };
        engine.segment().header.limit_bytes.store(1 << 30, Relaxed);
        let (pieces, mut handler, mut evictor) = (memory(engine), handler(engine), Evictor::new(engine));
        let mut batch = planned(&mut evictor, &pieces, APART);
        std::thread::scope(|scope| {
            let evictor = scope.spawn(|| {
                evictor.hand_over(NO_CPU, &mut batch);
                batch
            });
            while !evictor.is_finished() && !handler.take_out_row() {
                std::thread::yield_now();
            }
            let batch = evictor.join().expect("no panic");
            let rows = engine.plans.rows_taken.load(Relaxed) as usize;
            // Where not even one was taken in time, it is done all the same.
            let left = if rows == 0 { ALONE } else { rows };
            assert!(rows < 2);
            assert_eq!(batch.isolated, 6 * left as u64);
            check(engine, &pieces[..left], APART);
            check(engine, &pieces[left..], 0);
        });
    }

    #[test]
    fn a_plan_takes_no_more_rows_than_it_can_hold() {
        let Some(engine) = moving_engine() else { return };
        let (mut evictor, mut batch) = (Evictor::new(engine), Batch { planned: Some(0), ..Batch::default() });
        let mut plan = |number: usize| {
            let row = Row::of((2 * number + 1) * FOLIO, Candidates { written: 1, clean: 0 });
            evictor.plan(&row, &mut batch)
        };
        assert!((0..ROWS).all(&mut plan));
        assert!(!plan(ROWS), "it leaves at once");
    }

    /// Ends the other thread also where a check fails.
    struct Ends<'e>(&'e AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn both_take_out_at_once_and_nothing_is_lost() {
        const ROUNDS: usize = 200;
        let Some(engine) = moving_engine() else { return };
        let (pieces, ended) = (memory(engine), AtomicBool::new(false));
        let mut by_handler = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut handler = handler(engine);
                for pause in (0..).map(|number| number % 7) {
                    if ended.load(Relaxed) {
                        break;
                    }
                    // Now and then later than the evictor waits.
                    if handler.take_out_row() && pause == 0 {
                        std::thread::sleep(core::time::Duration::from_nanos(STALLED_NS));
                    }
                    std::thread::yield_now();
                }
            });
            let _ends = Ends(&ended);
            let mut evictor = Evictor::new(engine);
            for round in 0..ROUNDS {
                let before = engine.plans.rows_taken.load(Relaxed);
                let mut batch = planned(&mut evictor, &pieces, APART);
                evictor.hand_over(NO_CPU, &mut batch);
                assert_eq!(batch.isolated, 36, "round {round}: {batch:?}");
                by_handler += engine.plans.rows_taken.load(Relaxed) - before;
                check(engine, &pieces, APART);
                bring_back(engine, &pieces);
            }
        });
        std::eprintln!("{by_handler} of {} rows by the handler", ROUNDS * ALONE);
        assert!(by_handler > 0, "it took no part");
    }

    /// What is in staging goes, and the same is in the program again.
    fn bring_back(engine: &Engine, pieces: &[usize]) {
        // SAFETY: nobody else uses the ring.
        let staging = unsafe { &mut *engine.staging.get() };
        while let Some(place) = staging.oldest() {
            let piece = staging.folio(place).address;
            for page in 0..FOLIO_PAGES {
                let Some(entry) = staging.folio_mut(place).entries[page].take() else { continue };
                let mut contents: Page = [0; PAGE];
                contents[..8].copy_from_slice(&(7 + page as u64).to_ne_bytes());
                // SAFETY: mapped by the test; the page is missing.
                unsafe { engine.userfault().copy(piece + page * PAGE, contents.as_ptr(), PAGE) }
                    .expect("a missing page");
                engine.table.block(piece).expect("made").set(page_index(piece) + page, PageWord::PRESENT);
                engine.space.abandon(entry);
            }
            staging.pop();
        }
        staging.recycle(engine.userfault(), 1, |_| false);
        check(engine, pieces, 0);
    }
}

//! A plan that changes hands: the rows that the handler takes out, the rows that it leaves, and one
//! race.

use super::*;
use crate::engine::Engine;
use crate::engine::placement::NO_CPU;
use crate::engine::plans::{ROWS, STALLED_NS};
use crate::evict::evictor::Evictor;
use crate::fault::buffers::Buffers;
use crate::staging::batch::Batch;
use crate::staging::candidates::Candidates;
use crate::staging::isolation::Isolation;
use crate::staging::ring::BerthIndex;
use crate::staging::row::{JOINED_PIECES, ROW_PIECES, Row, Rows};
use crate::test_memory::{decide, ring_turn};
use crate::test_memory::{fill, map, moving_engine, word_at};
use crate::units::{BlockAddr, PAGE, PIECE, PIECE_PAGES, PageAddr, Pages, PieceAddr};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::Page;
use folioswap_policy::page::{PageState, PageWord};
use folioswap_policy::reclaim::handover::Handover;
use folioswap_policy::reclaim::handover::Rest;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// The number of rows of one piece each; between them lies a piece that stays.
const ALONE: usize = 6;

/// The pages of each piece that leave.
const APART: Pages = 0x9249;

fn handler(engine: &'static Engine) -> Handler {
    Handler::new(engine, Buffers::of(engine).expect("memory"))
}

/// The pieces that are to leave, filled and registered.
fn memory(engine: &Engine) -> [usize; ALONE] {
    let start = map((2 * ALONE + 1) * PIECE).next_multiple_of(PIECE);
    let pieces = core::array::from_fn(|number| start + 2 * number * PIECE);
    for piece in pieces {
        fill(piece);
        engine.table.block_or_insert(BlockAddr::containing(piece), engine.arena).expect("memory");
    }
    engine.register_pieces(start, start + 2 * ALONE * PIECE);
    pieces
}

/// A batch in which the pages `wanted` of each piece are planned.
fn planned(evictor: &mut Evictor, pieces: &[usize], wanted: Pages) -> Batch {
    let mut batch = Batch { planned: Some(0), ..Batch::default() };
    for &piece in pieces {
        assert!(evictor.plan(
            &Row::of(PieceAddr::containing(piece), Candidates { written: wanted, clean: 0 }),
            &mut batch
        ));
    }
    let dense = Row::of(PieceAddr::containing(pieces[0]), Candidates { written: 0xf, clean: 0 });
    assert!(!evictor.plan(&dense, &mut batch) && !evictor.plan(&Row::default(), &mut batch));
    assert_eq!(batch.planned, Some(pieces.len() as u64 * u64::from(wanted.count_ones())));
    batch
}

/// Checks that each page is where it is to be, with its contents.
fn check(engine: &Engine, pieces: &[usize], gone: Pages) {
    // SAFETY: nobody else uses the ring.
    let staging = unsafe { &*engine.staging.get() };
    for &piece in pieces {
        let block = engine.table.block(BlockAddr::containing(piece)).expect("made");
        for page in 0..PIECE_PAGES {
            let address = match block.word(PageAddr::containing(piece).index().plus(page)).state() {
                PageState::Leaving(entry) if gone >> page & 1 != 0 => {
                    staging.address(engine.staging_berth(entry).expect("it waits")) + page * PAGE
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
            (batch, evictor.handover.declined_until_ns)
        });
        while !engine.plans.are_offered() && !evictor.is_finished() {
            std::thread::yield_now();
        }
        // No row leaves before the evictor sleeps; then a fixed multiple of the pages that come
        // leaves.
        let (pages, mut came) = (u64::from(APART.count_ones()), 0);
        while engine.plans.are_offered() {
            handler.take_out_planned();
            handler.note_came(1);
            came += 1;
        }
        let (batch, declined_until_ns) = evictor.join().expect("no panic");
        assert_eq!((batch.isolated, batch.planned), (ALONE as u64 * pages, None));
        // Except if this thread stood still for so long that the evictor went on by itself (the
        // group is at its limit of nothing).
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
    assert_ne!(evictor.handover.declined_until_ns, 0, "for a while batches leave at once");
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

/// The evictor looks at the pages that the kernel does not move.
#[test]
fn what_was_busy_is_tried_again_by_the_evictor() {
    let Some(engine) = moving_engine() else { return };
    let (pieces, mut evictor) = (memory(engine), Evictor::new(engine));
    let mut batch = planned(&mut evictor, &pieces[..2], APART);
    // SAFETY: nothing is offered.
    let plan = unsafe { &mut *engine.plans.plan.get() };
    let row = Row::of(PieceAddr::containing(pieces[3]), Candidates { written: APART, clean: 0 });
    let mut done = [Isolation::default(); ROW_PIECES];
    done[0] = Isolation { moved: APART & !1, moves: 6, busy: 1, ..Isolation::default() };
    plan.note(&row, &done);
    assert_eq!(
        (plan.busy.start(), plan.busy.pages(), plan.done.isolated),
        (PieceAddr::containing(pieces[3]), 1, 5)
    );
    assert_eq!(plan.go_on(&mut ring_turn(engine)), Rest::None, "the handler goes no further");
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
        // The thread waits until its event is read.
        // SAFETY: nobody uses the page.
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

/// A row that an event has ended finds fewer berths side by side when it goes on.
#[test]
fn a_row_that_goes_on_takes_no_berth_that_is_not_free() {
    const WANTED: Pages = 0x0101;
    let Some(engine) = moving_engine() else { return };
    let (mut handler, mut evictor) = (handler(engine), Evictor::new(engine));
    let start = map(3 * JOINED_PIECES * PIECE).next_multiple_of(JOINED_PIECES * PIECE);
    let pieces: [usize; 4] = core::array::from_fn(|number| start + number * PIECE);
    for piece in pieces {
        fill(piece);
        engine.table.block_or_insert(BlockAddr::containing(piece), engine.arena).expect("memory");
    }
    engine.register_pieces(start, start + (pieces.len() + 1) * PIECE);
    let candidates = Candidates { written: WANTED, clean: 0 };
    let mut row = Row::of(PieceAddr::containing(start), candidates);
    for &piece in &pieces[1..] {
        assert!(row.append(PieceAddr::containing(piece), candidates, Rows::Joined));
    }
    assert!(evictor.plan(&row, &mut Batch { planned: Some(0), ..Batch::default() }));
    engine.plans.update(Handover::offer);
    // SAFETY: no other thread uses the ring.
    let staging = unsafe { &mut *engine.staging.get() };
    std::thread::scope(|scope| {
        let given_up = start + pieces.len() * PIECE;
        // SAFETY: nobody uses the page.
        scope.spawn(move || unsafe { madvise(given_up as *mut _, PAGE, Advice::LinuxDontNeed) });
        while engine.userfault().check_registered(given_up) != Err(Errno::AGAIN) {}
        assert!(handler.take_out_row() && engine.plans.are_offered());
        handler.read_messages();
    });
    while staging.berths_in_a_row() != 2 {
        staging.push();
        staging.pop();
        staging.recycle(engine.userfault(), 1, |_| false);
    }
    while engine.plans.are_offered() {
        assert!(handler.take_out_row());
    }
    check(engine, &pieces, WANTED);
    assert_eq!(staging.waiting(), 4);
    assert_eq!(staging.next_berth(), Some(BerthIndex::new(2)), "two lie behind the end of the ring");
}

/// Where there is time, the rows that the handler has not come to are left for the next plan.
#[test]
fn below_the_limit_a_late_plan_is_given_up() {
    let Some(engine) = moving_engine() else { return };
    decide(engine).set_limit_bytes(1 << 30);
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
        // If not even one row was taken in time, the plan is done all the same.
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
        let row =
            Row::of(PieceAddr::containing((2 * number + 1) * PIECE), Candidates { written: 1, clean: 0 });
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
                // Now and then the handler pauses for longer than the evictor waits.
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

/// Empties staging, and puts the same contents into the program again.
fn bring_back(engine: &Engine, pieces: &[usize]) {
    // SAFETY: nobody else uses the ring.
    let staging = unsafe { &mut *engine.staging.get() };
    while let Some(berth) = staging.oldest() {
        let piece = staging.berth(berth).piece;
        for page in 0..PIECE_PAGES {
            let Some(entry) = staging.berth_mut(berth).entries[page].take() else { continue };
            let mut contents: Page = [0; PAGE];
            contents[..8].copy_from_slice(&(7 + page as u64).to_ne_bytes());
            // SAFETY: the memory is mapped by the test, and the page is missing.
            unsafe { engine.userfault().copy(piece.page(page).raw(), contents.as_ptr(), PAGE) }
                .expect("a missing page");
            engine.table.block(piece).expect("made").set(piece.index().plus(page), PageWord::PRESENT);
            engine.space.abandon(entry);
        }
        staging.pop();
    }
    staging.recycle(engine.userfault(), 1, |_| false);
    check(engine, pieces, 0);
}

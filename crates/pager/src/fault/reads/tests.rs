use super::*;
use crate::test_memory;
use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;
use std::os::fd::OwnedFd;

const SLOTS: u64 = 64;

/// An engine with such a file; reads go into the pages of the second value.
fn with_file() -> (&'static Engine, OwnedFd, Box<[Page; 16]>) {
    let (engine, file) = test_memory::engine_with_file(SLOTS);
    (engine, file, Box::new([[0; PAGE]; 16]))
}

fn slot(number: u64) -> FileSlot {
    FileSlot::new(number).unwrap()
}

/// Reads these slots, unless io_uring is not allowed here.
fn begin(reads: &mut Reads, engine: &Engine, first: u64, count: usize) -> bool {
    let begun = reads.begin(engine, slot(first), count, engine.counts.stale_copies.load(Relaxed));
    if matches!(reads.means, Means::None) {
        test_memory::skip("io_uring is not allowed");
    }
    begun
}

fn wait(reads: &mut Reads) {
    while reads.descriptor().is_some() {
        reads.collect();
        std::thread::yield_now();
    }
}

#[test]
fn what_was_read_is_taken_once() {
    let (engine, _file, mut pages) = with_file();
    let mut reads = Reads::new();
    if !begin(&mut reads, engine, 3, 4) {
        return;
    }
    assert!(reads.readings[0].holds(slot(5), 2) && !reads.readings[0].holds(slot(5), 3));
    assert_eq!(reads.take(engine, slot(40), &mut pages[..4]), None, "other slots");
    wait(&mut reads);
    assert_eq!(reads.readings[0].state, State::There);
    assert!(reads.take(engine, slot(4), &mut pages[..3]).is_some());
    assert!(pages[..3].iter().zip(5..).all(|(page, byte)| page.iter().all(|&found| found == byte)));
    assert_eq!(reads.take(engine, slot(4), &mut pages[..3]), None, "it may be another's by now");
    assert_eq!(engine.figures().counter(Counter::FileReadsOverlapped), 1);
}

#[test]
fn what_is_forgotten_is_not_taken_and_its_room_comes_free_at_the_end() {
    let (engine, _file, mut pages) = with_file();
    let mut reads = Reads::new();
    if !begin(&mut reads, engine, 0, 1) {
        return;
    }
    reads.forget_all();
    assert_eq!(reads.readings[0].state, State::Forgotten);
    assert!(begin(&mut reads, engine, 8, 2) && reads.readings[1].first == 8);
    assert_eq!(
        reads.take(engine, slot(9), &mut pages[..3]),
        None,
        "more than is read: it comes back by another way"
    );
    assert_eq!(reads.readings[1].state, State::Forgotten);
    wait(&mut reads);
    assert!(reads.readings.iter().all(|reading| reading.state == State::Free));
    assert!(begin(&mut reads, engine, 1, 1));
    wait(&mut reads);
    reads.forget_all();
    assert_eq!(reads.readings[0].state, State::Free);
    assert_eq!(reads.take(engine, slot(1), &mut pages[..1]), None);
    assert!(begin(&mut reads, engine, 1, 1));
    wait(&mut reads);
    engine.counts.stale_copies.fetch_add(1, Relaxed);
    assert_eq!(reads.take(engine, slot(1), &mut pages[..1]), None, "a slot may have changed hands");
}

#[test]
fn what_fails_is_left_to_who_serves_the_fault() {
    let (engine, _file, mut pages) = with_file();
    let mut reads = Reads::new();
    if !begin(&mut reads, engine, SLOTS - 1, 2) {
        return;
    }
    wait(&mut reads);
    assert_eq!(reads.readings[0].state, State::Failed, "the file ends within it");
    assert!(reads.readings[0].holds(slot(SLOTS - 1), 2), "it is not begun again");
    assert_eq!(reads.take(engine, slot(SLOTS - 1), &mut pages[..2]), None);
    assert_eq!(reads.readings[0].state, State::Free);
}

#[test]
fn no_more_than_there_is_room_for() {
    let (engine, _file, _) = with_file();
    let mut reads = Reads::new();
    if !begin(&mut reads, engine, 0, 1) {
        return;
    }
    assert!((1..READS as u64).all(|first| begin(&mut reads, engine, first, 1)));
    assert!(!begin(&mut reads, engine, 20, 1));
    wait(&mut reads);
    assert!(!begin(&mut reads, engine, 20, 1), "all of it may still be wanted");
    reads.readings[2].began_ns = 0;
    assert!(
        !begin(&mut reads, engine, 20, 1) && begin(&mut reads, engine, 20, 1),
        "what nobody took makes room"
    );
    wait(&mut reads);
}

#[test]
fn only_several_threads_are_worth_it() {
    let mut reads = Reads::new();
    (0..3).for_each(|_| reads.note_thread(7));
    assert_eq!(reads.several, 0);
    reads.note_thread(8);
    assert_eq!(reads.several, ALONE_FAULTS);
    (0..ALONE_FAULTS).for_each(|_| reads.note_thread(8));
    assert_eq!(reads.several, 0);
}

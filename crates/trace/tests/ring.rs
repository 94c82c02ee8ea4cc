//! Records that are pushed come out once and in order, or are counted as lost.

use folioswap_trace::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// A ring in zeroed memory.
fn ring<const PLACES: usize>() -> Box<Ring<PLACES>> {
    // SAFETY: the memory has the layout of a ring, which is valid all-zero, and the box frees it
    // with the same layout.
    let ring = unsafe {
        let memory = std::alloc::alloc_zeroed(std::alloc::Layout::new::<Ring<PLACES>>());
        assert!(!memory.is_null());
        Box::from_raw(memory.cast::<Ring<PLACES>>())
    };
    ring.initialise(1_000_000, 1000, 4);
    ring
}

fn alloc(entry: u64) -> impl FnOnce(u16) -> Event {
    move |cpu| Event::Alloc { cpu, order: 0, entry }
}

fn entries<const PLACES: usize>(ring: &Ring<PLACES>) -> Vec<u64> {
    let mut found = Vec::new();
    ring.drain(|bytes| {
        match Record::decode(bytes).expect("valid").event {
            Event::Alloc { entry, .. } => found.push(entry),
            other => panic!("{other:?}"),
        }
        Taken::Yes
    });
    found
}

const NOW: Moment = Moment { ns: 3_500_000, cpu: 6 };

#[test]
fn ticks_count_from_the_origin_and_cpus_are_taken_modulo() {
    let ring = ring::<4>();
    ring.push(NOW, alloc(9));
    let mut found = Vec::new();
    ring.drain(|bytes| {
        found.push(Record::decode(bytes).unwrap());
        Taken::Yes
    });
    assert_eq!(found, [Record { tick: 2500, event: Event::Alloc { cpu: 2, order: 0, entry: 9 } }]);
}

#[test]
fn a_full_ring_loses_and_counts_and_goes_on() {
    let ring = ring::<4>();
    for round in 0..5 {
        (1..=6).for_each(|entry| ring.push(NOW, alloc(round * 10 + entry)));
        assert_eq!(ring.lost(), 2 * (round + 1));
        assert_eq!(entries(&ring), [1, 2, 3, 4].map(|entry| round * 10 + entry));
        assert_eq!(entries(&ring), []);
    }
}

#[test]
fn what_is_not_taken_stays() {
    let ring = ring::<4>();
    (1..=3).for_each(|entry| ring.push(NOW, alloc(entry)));
    let mut seen = 0;
    ring.drain(|_| {
        seen += 1;
        if seen == 2 { Taken::Not } else { Taken::Yes }
    });
    assert_eq!(entries(&ring), [2, 3]);
}

#[test]
fn a_hole_holds_back_what_follows_until_its_process_is_dead() {
    let ring = ring::<8>();
    ring.push(NOW, alloc(1));
    // A writer that is stopped between reservation and publication: another thread pushes
    // meanwhile.
    ring.push(NOW, alloc(2));
    let hole = hole_after(&ring, 2);
    ring.push(NOW, alloc(4));
    assert_eq!(entries(&ring), [1, 2]);
    let mut found = Vec::new();
    ring.drain_dead(|bytes| found.push(Record::decode(bytes).unwrap().event));
    assert_eq!(found.len(), 1, "what stands behind the hole");
    assert_eq!(ring.lost(), hole);
}

/// Makes a hole as a killed writer does, by its position in memory: the tail stands on the cache
/// lines behind the head (`Ring`'s layout). Returns the number of holes.
fn hole_after(ring: &Ring<8>, published: u64) -> u64 {
    let words = std::ptr::from_ref(ring).cast::<AtomicU64>();
    // SAFETY: the ring consists of atomics; its tail is 256 bytes in.
    let tail = unsafe { &*words.add(32) };
    assert_eq!(tail.fetch_add(1, Ordering::Relaxed), published);
    1
}

#[test]
fn a_ring_full_of_nonsense_is_drained_without_end_or_panic() {
    let ring = ring::<8>();
    let words = std::ptr::from_ref(&*ring).cast::<AtomicU64>();
    for word in 3..Ring::<8>::BYTES / 8 {
        // SAFETY: the ring consists of atomics.
        unsafe { &*words.add(word) }.store(u64::MAX, Ordering::Relaxed);
    }
    let mut count = 0;
    ring.drain_dead(|_| count += 1);
    assert!(count <= 64);
}

/// Four writers are each at most twelve records ahead of the drain, so that the ring is never full:
/// every record comes out once, whole, and each writer's in order.
#[test]
fn writers_against_the_drain() {
    const EACH: u64 = 50_000;
    let ring = ring::<64>();
    let taken: [AtomicU64; 4] = std::array::from_fn(|_| AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (writer, taken) in taken.iter().enumerate() {
            let ring = &ring;
            scope.spawn(move || {
                for number in 1..=EACH {
                    while number > taken.load(Ordering::Acquire) + 12 {
                        std::thread::yield_now();
                    }
                    ring.push(NOW, alloc((writer as u64) << 32 | number));
                }
            });
        }
        let mut left = 4 * EACH;
        while left > 0 {
            for entry in entries(&ring) {
                let before = taken[(entry >> 32) as usize].fetch_add(1, Ordering::Release);
                assert_eq!(entry & 0xffff_ffff, before + 1);
                left -= 1;
            }
        }
    });
    assert_eq!((entries(&ring), ring.lost()), (Vec::new(), 0));
}

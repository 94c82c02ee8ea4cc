//! Pieces hold the bytes written to them, under a limit, freed and reused, and in a forked child.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each test uses the pieces that it has made, and no others"
)]

use folioswap::Swap;
use folioswap_heap::{Fill, Heap, PAGE, Sender};
use std::collections::BTreeMap;
use std::ptr::NonNull;

fn swap() -> Result<Swap, folioswap::Error> {
    Swap::builder().limit("16M").validate().build()
}

/// Asserts that no invariant of the engine was broken, and no page lost.
fn is_sound(heap: &Heap) {
    let statistics = heap.swap().statistics();
    let figures = ["violations", "pages_poisoned"].map(|name| statistics.counter(name).unwrap());
    assert_eq!(figures, [0, 0], "{statistics}");
}

/// Fills a piece with words that depend on their position.
unsafe fn fill(piece: NonNull<u8>, bytes: usize, seed: u64) {
    for word in 0..bytes / 8 {
        unsafe { piece.cast::<u64>().add(word).write(seed.wrapping_mul(31) ^ word as u64) };
    }
}

/// Checks all words of a piece, and says of each wrong page where it is and what is there.
unsafe fn check(piece: NonNull<u8>, bytes: usize, seed: u64) {
    let mut wrong = BTreeMap::new();
    for word in 0..bytes / 8 {
        let (found, right) =
            (unsafe { piece.cast::<u64>().add(word).read() }, seed.wrapping_mul(31) ^ word as u64);
        if found != right {
            wrong.entry(word * 8 / PAGE).or_insert((0, (word, found, right))).0 += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "piece {piece:?} of {bytes} bytes, seed {seed}: page => (wrong words, (first, found, right)): {wrong:#x?}"
    );
}

#[test]
fn pieces_of_any_size_keep_what_was_written() {
    let heap = Heap::new(swap().unwrap());
    let mut pieces: Vec<(NonNull<u8>, usize, u64)> = Vec::new();
    let mut random = 88_172_645_463_325_252_u64;
    for step in 0..500_u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let held: usize = pieces.iter().map(|piece| piece.1).sum();
        if random % 8 < 3 && !pieces.is_empty() || held > 48 << 20 {
            let (piece, bytes, seed) = pieces.swap_remove(random as usize / 8 % pieces.len());
            unsafe {
                check(piece, bytes, seed);
                assert_eq!(heap.free(piece), Some(bytes.next_multiple_of(PAGE)));
            }
            continue;
        }
        let bytes = (PAGE << (random % 11)) + random as usize / 16 % 5000;
        let zero = (random / 4096).is_multiple_of(2);
        let piece = heap.allocate(bytes, if zero { Fill::Zero } else { Fill::Any }).unwrap();
        unsafe {
            if zero {
                assert!(std::slice::from_raw_parts(piece.as_ptr(), bytes).iter().all(|&byte| byte == 0));
            }
            fill(piece, bytes, step);
        }
        pieces.push((piece, bytes, step));
    }
    let figures = heap.figures();
    assert_eq!(figures.pieces, pieces.len());
    assert!(figures.left_bytes <= 2 << 20, "{figures:?}");
    for (piece, bytes, seed) in pieces {
        unsafe {
            check(piece, bytes, seed);
            heap.free(piece).unwrap();
        }
    }
    assert_eq!((heap.figures().pieces, heap.figures().bytes), (0, 0));
    assert!(heap.swap().statistics().counter("pswpout").unwrap() > 0, "the limit was never reached");
    is_sound(&heap);
}

#[test]
fn what_is_not_a_piece_is_left_alone() {
    let heap = Heap::new(swap().unwrap());
    let piece = heap.allocate(10, Fill::Any).unwrap();
    let mut byte = 0_u8;
    unsafe {
        assert_eq!(heap.free(NonNull::from(&mut byte)), None);
        assert_eq!(heap.free(piece.add(1)), None);
        assert_eq!(heap.free(piece.add(PAGE)), None);
        assert_eq!(heap.length(piece), Some(PAGE));
        assert_eq!(heap.free(piece), Some(PAGE));
        assert_eq!(heap.free(piece), None, "twice");
    }
    assert!(heap.allocate(usize::MAX, Fill::Any).is_err());
    assert!(heap.allocate(1 << 50, Fill::Zero).is_err());
}

#[test]
fn pieces_are_listed_and_their_regions_lent_without_the_lock() {
    let heap = Heap::new(swap().unwrap());
    let (first, second) =
        (heap.allocate(3 * PAGE - 1, Fill::Any).unwrap(), heap.allocate(1 << 20, Fill::Any).unwrap());
    unsafe {
        fill(second, 1 << 20, 5);
        let listed = heap.pieces().unwrap();
        let of = |piece: NonNull<u8>| listed.iter().find(|it| it.address == piece.as_ptr() as usize).unwrap();
        assert_eq!((listed.len(), of(first).bytes, of(first).resident_bytes), (2, 3 * PAGE, 0));
        assert_eq!((of(second).bytes, of(second).resident_bytes), (1 << 20, 1 << 20));
        assert!(heap.region_of(first, 3 * PAGE + 1).is_none(), "it ends behind the piece");
        assert!(heap.region_of(NonNull::from(&mut 0_u8), 1).is_none());
        let (region, range) = heap.region_of(second.add(10), 100).unwrap();
        assert_eq!(region.base().as_ptr().add(range.start), second.as_ptr().add(10));
        assert_eq!(range.len(), 100);
        let null = std::fs::File::create("/dev/null").unwrap();
        assert_eq!(region.write_to(null, range).unwrap(), 100);
        // The heap goes on meanwhile.
        heap.free(first).unwrap();
        heap.free(second).unwrap();
    }
    assert!(heap.pieces().unwrap().is_empty());
}

#[test]
fn a_forked_child_has_a_copy_that_is_its_own() {
    const BYTES: usize = 40 << 20;
    let heap = Heap::new(swap().unwrap());
    let (large, small) = (heap.allocate(BYTES, Fill::Any).unwrap(), heap.allocate(9000, Fill::Any).unwrap());
    unsafe {
        fill(large, BYTES, 7);
        fill(small, 9000, 8);
        let (sender, receiver) = Sender::prepare(&heap).unwrap();
        let child = libc::fork();
        if child == 0 {
            // A panic must not run the parent's other tests.
            let ended = std::panic::catch_unwind(|| {
                receiver.receive(sender, swap).unwrap();
                check(large, BYTES, 7);
                check(small, 9000, 8);
                fill(large, BYTES, 9);
                let more = heap.allocate(BYTES, Fill::Zero).unwrap();
                fill(more, BYTES, 10);
                check(large, BYTES, 9);
                check(more, BYTES, 10);
                heap.free(large).unwrap();
                assert!(heap.swap().statistics().counter("pswpout").unwrap() > 0);
            });
            libc::_exit(i32::from(ended.is_err()));
        }
        sender.send(receiver).unwrap();
        fill(small, 9000, 11);
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "the child failed");
        check(large, BYTES, 7);
        check(small, 9000, 11);
    }
    is_sound(&heap);
}

#[test]
fn a_child_without_a_copy_can_neither_allocate_nor_harm() {
    let heap = Heap::new(swap().unwrap());
    let piece = heap.allocate(1 << 20, Fill::Any).unwrap();
    unsafe {
        fill(piece, 1 << 20, 3);
        let child = libc::fork();
        if child == 0 {
            let refused = matches!(heap.allocate(1, Fill::Any), Err(folioswap::Error::Forked));
            let freed = heap.free(piece).is_some();
            libc::_exit(i32::from(!refused || !freed));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
        check(piece, 1 << 20, 3);
    }
}

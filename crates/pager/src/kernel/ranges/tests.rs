use super::*;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

#[test]
fn a_full_set_changes_only_where_it_says_so() {
    let set = empty();
    (0..RANGES_MAX).for_each(|number| set.insert(number * 10, number * 10 + 5).unwrap());
    let before: Vec<Range> = set.iter().collect();
    assert_eq!((set.remove(12, 13), set.insert(7, 8)), (Err(Full), Err(Full)));
    assert_eq!(set.iter().collect::<Vec<_>>(), before);
    set.forget(12, 13);
    assert_eq!((set.iter().count(), set.covers(10, 12)), (RANGES_MAX - 1, false));
    set.forget(22, 23);
    assert!(set.covers(20, 22) && set.covers(23, 25) && !set.covers(22, 23));
}

fn empty() -> Box<Ranges> {
    // SAFETY: all-zero is the empty set.
    unsafe { Box::<Ranges>::new_zeroed().assume_init() }
}

#[test]
fn behaves_like_a_set_of_pages() {
    let set = empty();
    let mut oracle = BTreeSet::new();
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..20_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let start = (seed % 200) as usize;
        let end = start + (seed >> 8) as usize % 12;
        if seed >> 40 & 1 == 0 {
            set.insert(start, end).unwrap();
            oracle.extend(start..end);
        } else {
            set.remove(start, end).unwrap();
            oracle.retain(|page| !(start..end).contains(page));
        }
        let pages: Vec<usize> = set.iter().flat_map(|range| range.start..range.end).collect();
        assert_eq!(pages, oracle.iter().copied().collect::<Vec<_>>());
        assert!(set.iter().collect::<Vec<_>>().windows(2).all(|pair| pair[0].end < pair[1].start));
        assert_eq!(Some(set.next_hole(start)), (start..).find(|page| !oracle.contains(page)));
        let probe = (seed >> 20) as usize % 210;
        assert_eq!(set.covers(probe, probe + 1), oracle.contains(&probe));
    }
}

/// A range that is always there is found by whoever asks, while others come and go around it.
#[test]
fn a_set_can_be_asked_while_it_changes() {
    let set: &'static Ranges = Box::leak(empty());
    const CHANGES: usize = if cfg!(miri) { 50 } else { 200_000 };
    let always = Range { start: 5_000, end: 6_000 };
    set.insert(always.start, always.end).unwrap();
    let over = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let found = set.around(5_500, |_| std::thread::yield_now()).unwrap();
                    assert_eq!(found, always);
                    let next = set.around(7_000, |_| std::thread::yield_now());
                    assert!(next.is_none_or(|next| next.start >= 7_000 && next.end == next.start + 500));
                }
            });
        }
        for change in 0..CHANGES {
            let place = change % 40;
            let start = if place < 4 { place * 1_000 } else { place * 1_000 + 3_000 };
            if change / 40 % 2 == 0 {
                set.insert(start, start + 500).unwrap();
            } else {
                set.remove(start, start + 500).unwrap();
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

use super::*;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

#[test]
fn a_full_set_changes_only_where_it_says_so() {
    let mut set = empty();
    (0..RANGES_MAX).for_each(|number| set.insert(number * 10, number * 10 + 5).unwrap());
    let before: Vec<Range> = set.as_slice().to_vec();
    assert_eq!((set.remove(12, 13), set.insert(7, 8)), (Err(Full), Err(Full)));
    assert_eq!(set.as_slice(), before);
    set.forget(12, 13);
    assert_eq!((set.as_slice().len(), set.covers(10, 12)), (RANGES_MAX - 1, false));
    set.forget(22, 23);
    assert!(set.covers(20, 22) && set.covers(23, 25) && !set.covers(22, 23));
}

fn empty() -> Box<Ranges> {
    // SAFETY: all-zero is the empty set.
    unsafe { Box::<Ranges>::new_zeroed().assume_init() }
}

#[test]
fn behaves_like_a_set_of_pages() {
    let mut set = empty();
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
        let pages: Vec<usize> = set.as_slice().iter().flat_map(|range| range.start..range.end).collect();
        assert_eq!(pages, oracle.iter().copied().collect::<Vec<_>>());
        assert!(set.as_slice().windows(2).all(|pair| pair[0].end < pair[1].start));
        assert_eq!(Some(set.next_hole(start)), (start..).find(|page| !oracle.contains(page)));
        let probe = (seed >> 20) as usize % 210;
        assert_eq!(set.covers(probe, probe + 1), oracle.contains(&probe));
    }
}

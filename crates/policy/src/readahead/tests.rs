use super::*;
use std::collections::HashMap;

const FAR: usize = 1000;

/// Returns the windows of faults that find nothing, far from each other, after `hits` hits each.
fn windows(readahead: &mut SwapinReadahead, most: usize, hits: &[u8]) -> Vec<usize> {
    let mut fault = |(step, &hits): (usize, &u8)| {
        (0..hits).for_each(|hit| readahead.hit(3 * step * FAR + FAR + usize::from(hit)));
        readahead.missed(3 * step * FAR, most).len()
    };
    hits.iter().enumerate().map(|(step, hits)| fault((step % 2, hits))).collect()
}

#[test]
fn without_hits_the_window_halves_down_to_the_page_alone() {
    assert_eq!(windows(&mut SwapinReadahead::new(), 8, &[0; 6]), [8, 4, 2, 1, 1, 1]);
    assert_eq!(windows(&mut SwapinReadahead::new(), 32, &[0; 5]), [8, 4, 2, 1, 1]);
    assert_eq!(windows(&mut SwapinReadahead::new(), 2, &[0; 3]), [2, 1, 1]);
}

#[test]
fn hits_let_it_grow_to_its_bound() {
    let mut readahead = SwapinReadahead::new();
    windows(&mut readahead, 32, &[0; 4]);
    assert_eq!(windows(&mut readahead, 32, &[1, 2, 3, 7, 40, 0, 0]), [4, 4, 8, 16, 32, 16, 8]);
    assert_eq!(windows(&mut readahead, 4, &[63, 63]), [4, 4]);
}

#[test]
fn nothing_is_read_ahead_where_it_is_off() {
    let mut readahead = SwapinReadahead::new();
    assert_eq!(readahead.missed(7, 1), 7..8);
    assert_eq!(readahead.missed(8, 1), 8..9);
}

#[test]
fn the_window_lies_ahead_of_a_walk_and_around_anything_else() {
    let mut readahead = SwapinReadahead::new();
    assert_eq!(readahead.missed(5003, 8), 5000..5008);
    readahead.missed(5000, 8);
    assert_eq!(windows(&mut readahead, 8, &[7]), [8]);
    readahead.hit(5000);
    assert_eq!(readahead.missed(5001, 8), 5001..5005);
    assert_eq!(readahead.missed(5000, 8), 4999..5001, "without a hit half of the one before");
    windows(&mut readahead, 8, &[0; 4]);
    assert_eq!(readahead.missed(100, 8), 100..101);
    assert_eq!(readahead.missed(101, 8), 101..103, "beside the last fault");
    readahead.hit(102);
    assert_eq!(readahead.missed(103, 8), 103..107);
    readahead.in_order(104);
    assert_eq!(readahead.missed(7, 8), 4..8);
    readahead.missed(0, 8);
    assert_eq!(readahead.missed(0, 8).start, 0, "nothing lies before the first page");
}

#[test]
fn each_area_has_a_window_of_its_own_until_another_takes_its_place() {
    let area = |number: usize| number << AREA_ORDER;
    let mut readahead = SwapinReadahead::new();
    (0..4).for_each(|step| _ = readahead.missed(area(1) + step * FAR, 8));
    assert_eq!(readahead.missed(area(2), 8).len(), 8);
    assert_eq!(readahead.missed(area(1) + 6 * FAR, 8).len(), 1);
    readahead.missed(area(1 + AREAS), 8);
    assert_eq!(readahead.missed(area(1), 8).len(), 8);
}

/// Compares with the rule, as plainly as it can be said, over random faults and hits.
#[test]
fn as_a_plain_oracle_has_it() {
    // The last page, window and hits of each area.
    let mut oracle: HashMap<usize, (usize, usize, usize)> = HashMap::new();
    let mut readahead = SwapinReadahead::new();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let mut page = 1 << 20;
    let mut sizes = [0u32; 33];
    for _ in 0..200_000 {
        page = match random(4) {
            0 => page + 1,
            1 => page - 1,
            2 => page + random(40) as usize,
            _ => (1 << 20) + random(8 << AREA_ORDER) as usize,
        };
        let known = oracle.entry(page >> AREA_ORDER).or_insert((0, 0, 4));
        if random(5) > 0 {
            readahead.hit(page);
            *known = (page, known.1, known.2 + 1);
            continue;
        }
        let most = 1usize << random(6);
        let found = readahead.missed(page, most);
        if most == 1 {
            assert_eq!(found, page..page + 1);
            continue;
        }
        let beside = page.abs_diff(known.0) == 1;
        let mut size = if known.2 > 0 { 4 } else { 1 + usize::from(beside) };
        while known.2 > 0 && size < known.2 + 2 {
            size *= 2;
        }
        size = size.min(most);
        if size < known.1 / 2 {
            size = known.1 / 2;
        }
        size = size.min(most);
        let first = if page == known.0 + 1 {
            page
        } else if page + 1 == known.0 {
            page + 1 - size
        } else {
            page / size * size
        };
        assert_eq!(found, first..first + size, "{known:?}");
        assert!(found.contains(&page));
        sizes[size] += 1;
        *known = (page, size, 0);
    }
    assert!([1, 2, 4, 8, 16].iter().all(|&size| sizes[size] > 100), "{sizes:?}");
}

use super::*;

const MIB: u64 = 1 << 20;

fn bucket_of(distance: u64) -> usize {
    (0..REFAULT_BUCKETS).rfind(|&bucket| refault_bucket_start(bucket) <= distance).expect("0 is in the first")
}

/// A memory of `fit` pages under LRU, and what it shows of these accesses.
fn simulate(accesses: &[usize], fit: usize) -> Refaulted {
    let mut refaulted = Refaulted {
        distances: [0.0; REFAULT_BUCKETS],
        evictions: 0,
        pages_in: 0,
        away: Away::default(),
        limit: fit as u64 * 4096,
    };
    let pages = accesses.iter().max().map_or(0, |most| most + 1);
    let (mut used, mut left) = (vec![None; pages], vec![None; pages]);
    let (mut resident, mut away) = (std::collections::BTreeMap::new(), 0_u64);
    for (now, &page) in accesses.iter().enumerate() {
        if let Some(then) = used[page].take() {
            resident.remove(&then);
        } else if let Some(then) = left[page].take() {
            refaulted.distances[bucket_of(refaulted.evictions - then)] += 1.0;
            refaulted.pages_in += 1;
            away -= 4096;
        }
        used[page] = Some(now);
        resident.insert(now, page);
        if resident.len() > fit {
            let (_, out) = resident.pop_first().expect("more than one");
            (used[out], left[out]) = (None, Some(refaulted.evictions));
            refaulted.evictions += 1;
            away += 4096;
            refaulted.away.below = refaulted.away.below.max(away);
        }
    }
    refaulted
}

/// Compares the curve of a run within `fit` pages with runs within more.
fn check(accesses: &[usize], fit: usize, larger: &[usize]) {
    let curve = simulate(accesses, fit);
    for &pages in larger {
        let real = simulate(accesses, pages).pages_in as f64;
        let said = curve.pages_in(pages as u64 * 4096).expect("above the limit") as f64;
        let slack = curve.pages_in as f64 * 0.02;
        assert!((said - real).abs() <= real * 0.15 + slack, "{fit} to {pages}: {said} for {real}");
    }
}

#[test]
fn pages_touched_at_random_are_predicted() {
    let mut random = folioswap_test_support::random::Random::new(7);
    let accesses: Vec<usize> = (0..400_000).map(|_| random.below(4000) as usize).collect();
    check(&accesses, 1500, &[1500, 1800, 2200, 3000, 3600]);
}

#[test]
fn a_small_part_that_is_touched_more_often_is_predicted() {
    let mut random = folioswap_test_support::random::Random::new(9);
    let mut access = || match random.below(10) {
        0..8 => random.below(1000) as usize,
        _ => 1000 + random.below(5000) as usize,
    };
    let accesses: Vec<usize> = (0..400_000).map(|_| access()).collect();
    check(&accesses, 900, &[1000, 1500, 2500, 4000]);
}

#[test]
fn a_loop_fits_or_does_not() {
    let accesses: Vec<usize> = (0..200_000).map(|now| now % 2000).collect();
    let curve = simulate(&accesses, 1000);
    assert!(curve.pages_in(1500 * 4096) > Some(curve.pages_in * 9 / 10));
    assert!(curve.pages_in(2500 * 4096) < Some(curve.pages_in / 20));
    let well = curve.runs_well().expect("pages came back") / 4096;
    assert!((1900..2300).contains(&well), "{well}");
}

#[test]
fn a_run_in_which_nothing_came_back_has_no_curve() {
    let accesses: Vec<usize> = (0..10_000).collect();
    let curve = simulate(&accesses, 1000);
    assert!(curve.evictions > 0);
    assert_eq!((curve.points(), curve.runs_well(), curve.pages_in(MIB * 100)), (Vec::new(), None, None));
}

#[test]
fn below_the_limit_of_the_run_nothing_is_said() {
    let accesses: Vec<usize> = (0..100_000).map(|now| now % 2000).collect();
    let curve = simulate(&accesses, 1000);
    assert_eq!(curve.pages_in(999 * 4096), None);
    assert_eq!(curve.points()[0], Point { limit_bytes: 1000 * 4096, pages_in: curve.pages_in });
    let falls = curve.points().windows(2).all(|two| two[0].pages_in >= two[1].pages_in);
    assert!(falls, "{:?}", curve.points());
}

/// What stays takes 4 KiB less its bytes in the store.
#[test]
fn the_store_is_not_needed_for_what_stays() {
    let away = Away { stored: 100 * MIB, taken: 50 * MIB, below: 0 };
    let within = |mib: u64| away.limit(100.0 * MIB as f64, (mib * MIB) as f64) / MIB as f64;
    assert_eq!((within(0), within(50), within(100)), (100.0, 125.0, 150.0));
}

/// A store that keeps its share of the limit has room for pages from below, until none is there.
#[test]
fn the_store_keeps_its_share_while_something_is_below() {
    let away = Away { stored: 80 * MIB, taken: 40 * MIB, below: 200 * MIB };
    let within = |mib: u64| away.limit(100.0 * MIB as f64, (mib * MIB) as f64) / MIB as f64;
    assert_eq!((within(0), within(60)), (100.0, 200.0));
    // 60 + 280 resident, and nothing is stored.
    assert_eq!(within(280), 340.0);
    let rising = (0..28).map(|ten| within(ten * 10)).collect::<Vec<_>>();
    assert!(rising.is_sorted(), "{rising:?}");
}

#[test]
fn pages_that_are_never_wanted_again_take_memory_too() {
    let mut random = folioswap_test_support::random::Random::new(5);
    let mut fresh = 3000;
    let accesses: Vec<usize> = (0..200_000)
        .map(|now| {
            if now % 5 != 0 {
                return random.below(3000) as usize;
            }
            fresh += 1;
            fresh
        })
        .collect();
    check(&accesses, 1500, &[1800, 2200, 2600]);
}

use super::*;
use std::vec::Vec;

const MEMORY: u64 = 64_000;
/// A store of the largest share, full of pages that compress to a third.
const STORE: Store = Store { memory: MEMORY, stored: 84_480, taken: 28_160, used: 28_160 };

/// No page was activated.
const EVICTIONS: Ages = Ages { age: 0, evictions: 0 };

/// Adds this many refaults at each of these distances, in percent of the memory.
fn refaults(distances: &Distances, all: &[(u64, u64)]) {
    for &(percent, count) in all {
        (0..count).for_each(|_| distances.add(MEMORY * percent / 100));
    }
}

fn disk() -> Costs {
    let costs = Costs::default();
    costs.add(Source::Store, 15_000_000, 1000);
    costs.add(Source::Below, 80_000_000, 1000);
    costs
}

/// Returns the shares taken one after the other, each time that these refaults come back.
fn shares(share: &mut StoreShare, costs: &Costs, all: &[(u64, u64)]) -> Vec<u64> {
    let distances = Distances::default();
    distances.clear(MEMORY, EVICTIONS);
    (0..6)
        .map(|_| {
            refaults(&distances, all);
            share.judge(&distances, costs, STORE, EVICTIONS);
            share.percent()
        })
        .collect()
}

#[test]
fn what_would_have_stayed_with_a_little_more_memory_makes_it_smaller() {
    let mut share = StoreShare::default();
    assert_eq!(shares(&mut share, &disk(), &[(3, 9000), (20, 900)])[0], 33);
    // The share shrinks for as long as that pays.
    let all = [(3, 4000), (12, 4000), (20, 2000), (30, 2000)];
    assert_eq!(shares(&mut StoreShare::default(), &disk(), &all)[..2], [33, 22]);
}

#[test]
fn a_loop_that_fits_into_the_largest_store_leaves_it_as_it_is() {
    let mut share = StoreShare::default();
    assert_eq!(shares(&mut share, &disk(), &[(120, 9000)]), [44; 6]);
    // A share that has shrunk grows again.
    let mut share = StoreShare::near(4);
    assert_eq!(shares(&mut share, &disk(), &[(80, 9000)])[..4], [11, 22, 33, 33]);
}

#[test]
fn a_slow_device_is_not_worth_it() {
    let costs = disk();
    costs.add(Source::Below, 10_000_000_000, 1000);
    let mut share = StoreShare::default();
    assert_eq!(shares(&mut share, &costs, &[(3, 9000), (110, 900)]), [44; 6]);
    // The share shrinks with the same refaults where the device is a fast one.
    let mut share = StoreShare::default();
    assert_eq!(shares(&mut share, &disk(), &[(3, 9000), (110, 900)])[0], 33);
}

#[test]
fn few_refaults_say_nothing() {
    let (distances, costs) = (Distances::default(), disk());
    let mut share = StoreShare::default();
    share.judge(&distances, &costs, STORE, EVICTIONS);
    refaults(&distances, &[(3, MEMORY / REFAULTS_PART - 1)]);
    share.judge(&distances, &costs, STORE, EVICTIONS);
    assert_eq!(share, StoreShare::default());
    refaults(&distances, &[(3, 1)]);
    share.judge(&distances, &costs, STORE, EVICTIONS);
    assert_eq!((share.percent(), distances.total()), (33, 0));
}

#[test]
fn what_is_activated_ages_what_is_away_but_needs_no_memory() {
    let (distances, costs) = (Distances::default(), disk());
    let mut share = StoreShare::default();
    // The refaults are five times as far as memory goes: too far for any share, as long as nothing
    // is known of activations.
    let far = &[(90, 4000)];
    distances.clear(MEMORY, EVICTIONS);
    refaults(&distances, far);
    share.judge(&distances, &costs, STORE, Ages { age: 500_000, evictions: 50_000 });
    assert_eq!(share.percent(), 44);
    refaults(&distances, far);
    share.judge(&distances, &costs, STORE, Ages { age: 1_000_000, evictions: 100_000 });
    assert_eq!(share.percent(), 33);
}

#[test]
fn whatever_comes_back_it_goes_by_single_steps() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (distances, mut share) = (Distances::default(), StoreShare::default());
    let (mut seen, mut ages) = ([false; SHARES.len()], Ages::default());
    for _ in 0..3000 {
        let costs = Costs::default();
        costs.add(Source::Store, next(1 << 30), next(1 << 16));
        costs.add(Source::Below, next(1 << 34), next(1 << 16));
        let memory = next(100_000);
        let (all, around) = (next(4000), 1 + next(300_000));
        (0..all).for_each(|_| distances.add(next(around)));
        let before = share.step;
        ages = Ages { age: ages.age + next(9000), evictions: ages.evictions + next(5000) };
        share.judge(
            &distances,
            &costs,
            Store { memory, stored: next(1 << 18), taken: next(1 << 16), used: next(1 << 16) },
            ages,
        );
        assert!(share.step.abs_diff(before) <= 1);
        seen[share.step] = true;
    }
    assert_eq!(seen, [true; SHARES.len()], "all are within reach");
}

#[test]
fn nothing_is_kept_by_the_way_where_each_page_of_memory_spares_reads() {
    // Each refault would have stayed with a little more memory, more than the last share gives.
    let (distances, mut share) = (Distances::default(), StoreShare::near(4));
    distances.clear(MEMORY, EVICTIONS);
    refaults(&distances, &[(1, 9000)]);
    share.judge(&distances, &disk(), STORE, EVICTIONS);
    assert!(share.is_none());
    // It begins again where pages come back that a store would have held.
    let empty = Store { stored: 0, taken: 0, used: 0, ..STORE };
    refaults(&distances, &[(9, 9000)]);
    share.judge(&distances, &disk(), empty, EVICTIONS);
    assert_eq!(share.percent(), 4);
}

#[test]
fn holes_make_the_store_dearer() {
    // As much memory for a third of what the store takes: each page of it holds one.
    let with_holes = Store { used: 3 * STORE.taken, ..STORE };
    let after = |store: Store| {
        let (distances, mut share) = (Distances::default(), StoreShare::default());
        distances.clear(MEMORY, EVICTIONS);
        refaults(&distances, &[(20, 4000), (100, 2000)]);
        share.judge(&distances, &disk(), store, EVICTIONS);
        share.percent()
    };
    assert_eq!((after(STORE), after(with_holes)), (44, 33));
}

#[test]
fn a_share_is_taken_over_from_others() {
    for (percent, expected) in [(0, 0), (1, 0), (3, 4), (12, 11), (40, 44), (100, 44)] {
        assert_eq!(StoreShare::near(percent).percent(), expected, "{percent}");
    }
    assert!(StoreShare::near(44).is_most());
}

/// The part of all pages that is used next, for a random number and the number of the touch.
type Law = fn(f64, u64) -> f64;

/// Runs a process that uses pages by a law, in memory that gives up the page used longest ago, with
/// a store and a file below it. Returns the cost of all its refaults with a fixed share (`step`),
/// or with one that is judged.
fn run(step: Option<usize>, law: Law, pages: usize) -> u64 {
    const TOTAL: u64 = 4000;
    let (mut used, mut now) = (std::vec![0_u64; pages], 0);
    let (distances, costs) = (Distances::default(), disk());
    let mut share = StoreShare { step: step.unwrap_or(0), ..StoreShare::default() };
    // The pages are ordered by last use: a page's position in the order is the memory that keeping
    // it takes.
    let mut order = std::collections::VecDeque::new();
    let (mut nanoseconds, mut random) = (0, 7_u64);
    for touch in 0..40_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (random >> 33) as f64 / (1_u64 << 31) as f64;
        let page = (law(number, touch) * pages as f64) as usize;
        let taken = TOTAL * share.percent() / 100;
        let (resident, reach) = (TOTAL - taken, TOTAL - taken + 3 * taken);
        let depth = match used[page] {
            0 => None,
            _ => order.iter().rposition(|&other| other == page).map(|at| (order.len() - 1 - at) as u64),
        };
        if let Some(depth) = depth {
            order.remove(order.len() - 1 - depth as usize);
            if depth >= resident {
                distances.add(depth - resident);
                if touch > 28_000 {
                    nanoseconds += if depth < reach { 20_000 } else { 90_000 };
                }
            }
        }
        now += 1;
        used[page] = now;
        order.push_back(page);
        if touch % 500 == 0 && step.is_none() {
            share.judge(
                &distances,
                &costs,
                Store { memory: TOTAL, stored: 3 * taken, taken, used: taken },
                EVICTIONS,
            );
        }
    }
    nanoseconds
}

#[test]
fn it_finds_a_share_that_costs_little_more_than_the_best() {
    // The laws: a working set a little larger than the memory that the largest store leaves; a
    // loop; pages used by a power law.
    let laws: [(&str, usize, Law); 3] = [
        ("a set", 3500, |number, _| number),
        ("a loop", 6000, |_, touch| (touch % 6000) as f64 / 6000.0),
        ("a power law", 12_000, |number, _| number.powi(6)),
    ];
    for (name, pages, law) in laws {
        let fixed = core::array::from_fn::<_, { SHARES.len() }, _>(|step| run(Some(step), law, pages));
        let judged = run(None, law, pages);
        let best = *fixed.iter().min().unwrap();
        assert!(judged <= best + best / 4 + 10_000_000, "{name}: {judged} judged, {fixed:?} fixed");
    }
}

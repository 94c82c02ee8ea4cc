use super::*;
use folioswap_group::refaults::refault_bucket_start;

const MIB: u64 = 1 << 20;

/// A memory under LRU that is looked at now and then.
#[derive(Default)]
struct Memory {
    gathered: Gathered,
    /// When resident pages were used, and those pages in this order.
    used: std::collections::HashMap<usize, usize>,
    resident: std::collections::BTreeMap<usize, usize>,
    /// The moments at which pages left that are away.
    left: std::collections::HashMap<usize, u64>,
    now: usize,
    evictions: u64,
    seen: u64,
    pages_in: u64,
    came: Vec<Came>,
}

impl Memory {
    fn access(&mut self, page: usize, fit: usize) {
        self.now += 1;
        if let Some(then) = self.used.remove(&page) {
            self.resident.remove(&then);
        } else if let Some(then) = self.left.remove(&page) {
            // A member knows the distance by its bucket.
            let distance = self.evictions - then;
            let bucket = (0..REFAULT_BUCKETS).rfind(|&it| refault_bucket_start(it) <= distance);
            let bucket = bucket.expect("0 is in the first");
            let moment = |distance| self.evictions as f64 - refault_bucket_start(distance) as f64;
            self.came.push(Came { from: moment(bucket + 1), to: moment(bucket), pages: 1.0 });
            self.pages_in += 1;
        }
        self.used.insert(page, self.now);
        self.resident.insert(self.now, page);
        while self.resident.len() > fit {
            let (_, out) = self.resident.pop_first().expect("more than one");
            self.used.remove(&out);
            self.left.insert(out, self.evictions);
            self.evictions += 1;
        }
        if self.now.is_multiple_of(200) {
            self.look(fit);
        }
    }

    fn look(&mut self, fit: usize) {
        let away = Away { out: self.left.len() as u64 * 4096, ..Away::default() };
        self.gathered.look(self.evictions - self.seen, &self.came, away, fit as u64 * 4096);
        self.seen = self.evictions;
        self.came.clear();
    }

    /// The program gives up its pages from this one on.
    fn give_up_from(&mut self, first: usize) {
        self.left.retain(|&page, _| page < first);
        self.resident.retain(|_, &mut page| page < first);
        self.used.retain(|&page, _| page < first);
    }

    fn refaulted(mut self, fit: usize) -> Refaulted {
        self.look(fit);
        Refaulted {
            distances: [0; REFAULT_BUCKETS],
            evictions: self.evictions,
            pages_in: self.pages_in,
            needed: self.gathered.needed,
        }
    }
}

/// A memory of `fit` pages, and what it shows of these accesses.
fn simulate(accesses: &[usize], fit: usize) -> Refaulted {
    let mut memory = Memory::default();
    accesses.iter().for_each(|&page| memory.access(page, fit));
    memory.refaulted(fit)
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
    let away = Away { out: 0, stored: 100 * MIB, taken: 50 * MIB, below: 0 };
    let within = |mib: u64| away.limit(100.0 * MIB as f64, (mib * MIB) as f64) / MIB as f64;
    assert_eq!((within(0), within(50), within(100)), (100.0, 125.0, 150.0));
}

/// A store that keeps its share of the limit has room for pages from below, until none is there.
#[test]
fn the_store_keeps_its_share_while_something_is_below() {
    let away = Away { out: 0, stored: 80 * MIB, taken: 40 * MIB, below: 200 * MIB };
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

/// Half of what a program has once filled is given up while it is away; what it touches then is
/// predicted by what is left of it.
#[test]
fn what_was_given_up_needs_no_memory() {
    let run = |fit: usize| {
        let mut random = folioswap_test_support::random::Random::new(11);
        let mut memory = Memory::default();
        (0..6000).for_each(|page| memory.access(page, fit));
        memory.give_up_from(3000);
        (0..100_000).for_each(|_| memory.access(random.below(3000) as usize, fit));
        memory.refaulted(fit)
    };
    let curve = run(1500);
    // Within 3000 pages and more each page that was away comes back once. How many of these were
    // among what was given up is not known.
    for fit in [2000, 2500] {
        let real = run(fit).pages_in as f64;
        let said = curve.pages_in(fit as u64 * 4096).expect("above the limit") as f64;
        assert!(
            (said - real).abs() <= real * 0.15 + curve.pages_in as f64 * 0.02,
            "{fit}: {said} for {real}"
        );
    }
}

/// Each part of a run speaks for the limit that it had.
#[test]
fn a_limit_that_was_changed_is_known_from_the_higher_one() {
    let mut random = folioswap_test_support::random::Random::new(13);
    let mut memory = Memory::default();
    (0..100_000).for_each(|_| memory.access(random.below(3000) as usize, 1000));
    (0..100_000).for_each(|_| memory.access(random.below(3000) as usize, 2000));
    let curve = memory.refaulted(2000);
    assert_eq!((curve.known_from(), curve.pages_in(1999 * 4096)), (2000 * 4096, None));
    // A third of 200 000 touches within 2000 pages of 3000, a sixth within 2500.
    for (fit, real) in [(2000, 66_667.0), (2500, 33_333.0)] {
        let said = curve.pages_in(fit * 4096).expect("above the limit") as f64;
        assert!((said - real).abs() < real * 0.15, "{fit}: {said} for {real}");
    }
}

//! Programs of others in a random order, in each way of managing them, while everything that may
//! leave is taken out all the time: what they print is what they print natively.
//!
//! Five minutes; an hour with `FOLIOSWAP_LONG=1`. `FOLIOSWAP_SEED=N` repeats an order.
#![cfg(target_arch = "x86_64")]

use folioswap_acceptance::job::{self, Job, NOBODY};
use folioswap_acceptance::others::OTHERS;
use folioswap_acceptance::{MIB, only_root};
use folioswap_test_support::environment;
use folioswap_test_support::random::Random;
use std::collections::HashMap;
use std::time::{Duration, Instant};

#[test]
fn programs_in_rotation_print_what_they_do_natively() {
    only_root!("become another user");
    let seed = environment::number("FOLIOSWAP_SEED", Random::fresh_seed());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    let until = Instant::now() + Duration::from_secs(60 * job::amount(5, 60));
    let mut natively = HashMap::new();
    let mut runs = [0; 3];
    while Instant::now() < until {
        let command = OTHERS[below(OTHERS.len())];
        let way = [0, 0, 0, 1, 2][below(5)];
        let job = || Job::new(command).timeout(Duration::from_secs(300));
        let native = natively.entry(command).or_insert_with(|| {
            let outcome = job().user(NOBODY).unlimited();
            assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
            outcome.text()
        });
        let job = match way {
            0 => job().unprivileged(),
            1 => job().option("--gate").option("always"),
            _ => job(),
        };
        let outcome = job.option("--evict-all").within(1024 * MIB);
        let said = format!("seed {seed}, run {}: {}", runs.iter().sum::<u32>(), outcome.describe());
        assert_eq!((outcome.code, outcome.text()), (Some(0), native.clone()), "{said}");
        assert!(outcome.said().iter().all(|line| !line.contains("ends")), "{said}");
        runs[way] += 1;
    }
    println!("{runs:?} runs with gated calls, with gated forks, by the kernel's reports");
    assert!(runs.iter().all(|runs| *runs > 0), "{runs:?}");
}

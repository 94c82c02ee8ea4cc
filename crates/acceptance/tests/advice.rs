//! Advice of a program about its memory, given with madvise(2), is carried out (spec §3.7).

use folioswap_acceptance::MIB;
use folioswap_acceptance::job::{self, Job};
use folioswap_acceptance::programs::c_program;
use std::time::Duration;

/// Runs a case of `advice.c` with `mib` MiB of memory within `limit` MiB.
fn case(name: &str, mib: u64, limit: u64) {
    if !job::judging_folioswap() {
        return;
    }
    let program = c_program("advice", "", &["-pthread"]);
    let size = mib.to_string();
    let job = Job::new([program.as_os_str(), name.as_ref(), size.as_ref()]).timeout(Duration::from_secs(900));
    let outcome = job.within(limit);
    job::report(name, &outcome);
    outcome.check();
    assert_eq!(outcome.text(), format!("ok {name}\n"), "{}", outcome.describe());
}

/// The advice covers all of the memory, parts of pieces, clean and dirty pages, a range with a
/// hole, locked pages, and wrong addresses.
#[test]
fn paged_out_is_out_and_nothing_else() {
    case("page-out", 48, 256 * MIB);
}

#[test]
fn what_is_cold_leaves_before_what_was_touched_longer_ago() {
    case("cold", 64, 96 * MIB);
}

#[test]
fn what_will_be_needed_comes_back_as_far_as_there_is_room() {
    case("will-need", 32, 96 * MIB);
}

/// Two threads write, two advise, and children are forked meanwhile, within a third of the memory
/// in use.
#[test]
fn a_storm_of_advice_with_forks_in_the_middle() {
    case("storm", 96, 32 * MIB);
}

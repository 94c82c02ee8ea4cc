//! Folios of every order, huge pages among them, leave and come back (spec §3): walks make them,
//! random operations split them.

use folioswap_acceptance::MIB;
use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::skipping;
use std::time::{Duration, Instant};

/// Runs a case of `orders.c` with `mib` MiB of memory within `limit` MiB, with options of `run`.
fn case(name: &str, mib: u64, limit: u64, options: &[&str]) -> Option<Outcome> {
    case_from(1, name, mib, limit, options)
}

/// Runs a case with another seed of its random numbers.
fn case_from(seed: u64, name: &str, mib: u64, limit: u64, options: &[&str]) -> Option<Outcome> {
    if !job::judging_folioswap() {
        return None;
    }
    let program = c_program("orders", "", &["-pthread"]);
    let size = mib.to_string();
    let job = Job::new([program.as_os_str(), name.as_ref(), size.as_ref()]).timeout(Duration::from_secs(900));
    let job = job.env("SEED", seed.to_string());
    let job = options.iter().fold(job, |job, option| job.option(option));
    let outcome = job.within(limit * MIB);
    job::report(name, &outcome);
    assert!(outcome.text().ends_with(&format!("ok {name}\n")), "{}", outcome.describe());
    Some(outcome)
}

/// Whether this host has huge pages for programs that ask for them. Without them the test, whose
/// program has checked its data, counts as skipped.
fn has_huge_pages() -> bool {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let has = enabled.is_ok_and(|enabled| !enabled.contains("[never]"));
    if !has {
        skipping::note("this host has no transparent huge pages");
    }
    has
}

fn swapped(outcome: &Outcome, size: &str, counter: &str) -> u64 {
    outcome.size_figure(size, counter).expect("a counter")
}

#[test]
fn a_walk_makes_huge_pages_and_gets_them_back() {
    let Some(outcome) = case("walk", 640, 256, &[]) else { return };
    if has_huge_pages() {
        let whole = swapped(&outcome, "2048kB", "swpout");
        assert!(whole > 20, "{whole} huge pages left: {}", outcome.describe());
        assert!(swapped(&outcome, "2048kB", "swpout_fallback") <= whole / 100);
    }
}

/// One default, and sizes of the user's choice: no folio has a size that was not allowed.
#[test]
fn only_the_sizes_that_are_allowed() {
    let (mib, limit) = (job::amount(192, 384), job::amount(80, 160));
    for (sizes, allowed) in [("all=never", &["4kB"][..]), ("64k=always", &["4kB", "64kB"])] {
        let Some(outcome) = case("walk", mib, limit, &["--thp", sizes]) else { return };
        for size in ["4kB", "8kB", "16kB", "32kB", "64kB", "128kB", "256kB", "512kB", "1024kB", "2048kB"] {
            let (out, into) = (swapped(&outcome, size, "swpout"), swapped(&outcome, size, "swpin"));
            assert!(allowed.contains(&size) || (out, into) == (0, 0), "{sizes}: {size} {out} {into}");
        }
        assert!(swapped(&outcome, allowed[allowed.len() - 1], "swpout") > 1000);
    }
}

/// Each size alone leaves in folios of that size, comes back in them, and in none of another.
/// Memory of 2 MiB leaves whole where it is one of the kernel's huge pages, of which the other
/// tests have some; it comes back together in any case.
#[test]
fn each_size_alone_leaves_and_comes_back_whole() {
    let sizes = [8, 16, 32, 64, 128, 256, 512, 1024, 2048];
    for size in sizes {
        let allowed =
            if size < 1024 { format!("{size}k=always") } else { format!("{}m=always", size / 1024) };
        let Some(outcome) = case("there_and_back", 160, 128, &["--thp", &allowed]) else { return };
        let pages = size / 4;
        for counter in ["swpout", "swpin"] {
            let here = |size: u64| swapped(&outcome, &format!("{size}kB"), counter);
            let others: u64 = sizes.iter().filter(|&&other| other != size).map(|&other| here(other)).sum();
            assert_eq!(others, 0, "{size}k {counter}: {}", outcome.describe());
            let (whole, single) = (here(size) * pages, here(4));
            if size < 2048 || counter == "swpin" {
                // Most pages, not all: the first pages of a walk are single, and so are those that
                // the clock meets where others are away.
                assert!(whole > 3 * single, "{size}k {counter}: {whole} pages, and {single} single ones");
            }
        }
    }
}

#[test]
fn what_the_program_wants_huge_is_huge_after_it_was_away() {
    let Some(outcome) = case("huge", 640, 256, &[]) else { return };
    if has_huge_pages() {
        assert!(swapped(&outcome, "2048kB", "swpin") > 50, "{}", outcome.describe());
    }
}

/// The kernel moves a huge page that was shared only once it knows that the sharing has ended.
#[test]
fn what_a_child_has_shared_leaves_when_it_has_ended() {
    let Some(outcome) = case("forked", 540, 256, &[]) else { return };
    if has_huge_pages() {
        let whole = swapped(&outcome, "2048kB", "swpout");
        assert!(whole > 50, "{whole} huge pages left: {}", outcome.describe());
    }
}

#[test]
fn no_update_is_lost_while_huge_pages_come_and_go() {
    let Some(outcome) = case("counters", 480, 192, &[]) else { return };
    if has_huge_pages() {
        assert!(large_folios(&outcome) > 0, "{}", outcome.describe());
    }
}

/// Folios of 64 KiB and more that left.
fn large_folios(outcome: &Outcome) -> u64 {
    let sizes = ["64kB", "128kB", "256kB", "512kB", "1024kB", "2048kB"];
    sizes.iter().map(|size| swapped(outcome, size, "swpout")).sum()
}

/// The sizes that may leave and come back, by seed: the default, single pages alone, some sizes.
const ALLOWED: [&[&str]; 4] =
    [&[], &["--thp", "16k=always,512k=always"], &["--thp", "all=never"], &["--thp", "1m=always,2m=always"]];

/// Three threads carry out random operations: writes, reads, all advice, unmappings, moves,
/// protections, forks.
#[test]
fn random_operations_against_an_oracle() {
    let (began, mut seed) = (Instant::now(), 0);
    while seed == 0 || began.elapsed() < Duration::from_secs(job::amount(1, 1800)) {
        let allowed = ALLOWED[seed as usize % ALLOWED.len()];
        seed += 1;
        let Some(outcome) = case_from(seed, "oracle", 480, 192, allowed) else { return };
        if allowed.is_empty() {
            assert!(large_folios(&outcome) > 0, "{}", outcome.describe());
        }
    }
}

/// The same operations with pages that leave to a file.
#[test]
fn random_operations_with_data_on_a_file() {
    let on_file = ["--swap", "file:/var/tmp,size=1G"];
    case("oracle", 360, 160, &on_file);
    case_from(2, "oracle", 300, 130, &[ALLOWED[1], &on_file].concat());
}

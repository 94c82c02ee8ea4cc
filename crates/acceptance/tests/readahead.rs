//! Swapin readahead from a file (`run --page-cluster`) is of use where neighbours are wanted, quiet
//! where they are not, and never wrong.

use folioswap_acceptance::job::{self, Engine, Job, Outcome};
use folioswap_acceptance::{MIB, skip};
use std::time::Duration;

const CLUSTERS: &str = env!("CARGO_BIN_EXE_acc-clusters");

macro_rules! only_folioswap {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
    };
}

/// Runs 128 MiB of data that all go to this device within 48 MiB, touched in groups of `cluster`
/// pages; every byte is verified.
fn clusters(device: &str, page_cluster: &str, cluster: &str, more: &[&str]) -> Outcome {
    let words = [CLUSTERS, "--size", "128M", "--cluster", cluster];
    let mut job = Job::new(words.iter().chain(more)).timeout(Duration::from_secs(900));
    for word in ["--swap", device, "--page-cluster", page_cluster] {
        job = job.option(word);
    }
    let outcome = job.under(Engine::Folioswap { memory: Some(48 * MIB), scope: "resident" });
    job::report(&format!("{device}, page-cluster {page_cluster}, clusters of {cluster}"), &outcome);
    outcome.check();
    job::check_swapped(&outcome, 70 * MIB);
    outcome
}

fn figure(outcome: &Outcome, name: &str) -> f64 {
    outcome.figure(name).unwrap_or_else(|| panic!("no {name}: {}", outcome.describe()))
}

const FILE: &str = "file:/var/tmp,size=1G";

fn skips_without_io_uring() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    matches!(disabled.trim(), "1" | "2")
}

#[test]
fn neighbours_are_there_when_they_are_wanted() {
    only_folioswap!();
    if skips_without_io_uring() {
        skip!("io_uring is disabled here");
    }
    let groups = ["--groups", "1500"];
    let ahead = clusters(FILE, "3", "8", &groups);
    let (read, hits) = (figure(&ahead, "swap_ra"), figure(&ahead, "swap_ra_hit"));
    assert!(read > 1500.0 && hits > read / 4.0 && hits <= read, "{hits} of {read}: {}", ahead.describe());
    // The same program without readahead: a page that was a hit is then a read that a fault waits
    // for.
    let alone = clusters(FILE, "0", "8", &groups);
    assert_eq!((figure(&alone, "swap_ra"), figure(&alone, "swap_ra_hit")), (0.0, 0.0));
    let (with, without) = (figure(&ahead, "pgmajfault"), figure(&alone, "pgmajfault"));
    assert!(with < without * 0.8, "{with} faults that read, {without} without readahead");
}

#[test]
fn random_access_reads_hardly_anything_ahead() {
    only_folioswap!();
    let outcome = clusters(FILE, "5", "1", &["--groups", "8000"]);
    let (read, faults) = (figure(&outcome, "swap_ra"), figure(&outcome, "pgmajfault"));
    assert!(faults > 4000.0 && read < faults / 5.0, "{read} of {faults}: {}", outcome.describe());
}

/// Where reading costs as little as copying, no page is kept that was not asked for.
#[test]
fn nothing_is_read_ahead_of_fast_devices() {
    only_folioswap!();
    for device in ["zram", "ram,size=512M"] {
        let outcome = clusters(device, "3", "8", &["--groups", "500"]);
        assert_eq!(figure(&outcome, "swap_ra"), 0.0, "{device}: {}", outcome.describe());
    }
}

/// While pages are read ahead they are written, given back, mapped anew, and read by a forked child
/// beside its parent.
#[test]
fn what_changes_meanwhile_is_never_read_as_it_was() {
    only_folioswap!();
    for (threads, groups, seed) in [("1", "1500", "7"), ("4", "3000", "8")] {
        let more = ["--groups", groups, "--threads", threads, "--disturb", "yes", "--seed", seed];
        let outcome = clusters(FILE, "3", "8", &more);
        assert!(figure(&outcome, "forks") > 5.0, "{}", outcome.describe());
        if !skips_without_io_uring() {
            let (read, hits) = (figure(&outcome, "swap_ra"), figure(&outcome, "swap_ra_hit"));
            assert!(read > 500.0 && hits > 150.0, "{hits} of {read}: {}", outcome.describe());
        }
    }
}

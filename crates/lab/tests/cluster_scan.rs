//! The experiment of series 1, small: the direction of every published result.

use folioswap_lab::build::{Scale, Sizes};
use folioswap_lab::experiments::cluster_scan::*;
use folioswap_report::Show;

fn small() -> Options {
    Options { scale: Scale(8), tasks_per_job: 5, fills: vec![78, 90, 97], runs: 1 }
}

/// Outcomes in the order before, patch 1, patch 2, today.
fn outcomes(sizes: Sizes, completion: Completion, fill: u32) -> Vec<Outcome> {
    run_cases(&small(), &[Case { sizes, completion, fill, reading: Reading::Build }], Show::No).unwrap()
}

fn failed(outcome: &Outcome, order: usize) -> f64 {
    outcome.fallback[order] as f64 / (outcome.fallback[order] + outcome.swpout[order]) as f64
}

#[test]
fn two_megabytes_fail_before_and_find_room_after() {
    for completion in [Completion::Synchronous, Completion::Asynchronous] {
        let [before, _, patch_2, today] = &outcomes(Sizes::All, completion, 78)[..] else {
            panic!("four policies")
        };
        assert!(failed(before, 9) > 0.3, "{completion:?}: {before:?}");
        for after in [patch_2, today] {
            assert!(failed(after, 9) < 0.05, "{completion:?}: {after:?}");
            assert!(failed(after, 7) < 0.01 && after.fallback[4] == 0, "{completion:?}: {after:?}");
        }
        assert!(before.swpout[9] + before.fallback[9] > 10, "too few to say anything: {before:?}");
    }
}

#[test]
fn with_room_to_spare_no_64k_folio_falls_back() {
    for completion in [Completion::Synchronous, Completion::Asynchronous] {
        let outcomes = outcomes(Sizes::Only64k, completion, 78);
        for after in &outcomes[2..] {
            assert_eq!(after.fallback[4], 0, "{completion:?}: {after:?}");
            assert!(after.swpout[4] > 10_000);
        }
    }
}

#[test]
fn where_folios_fall_back_one_fragment_cluster_is_scanned_and_not_all() {
    for completion in [Completion::Synchronous, Completion::Asynchronous] {
        let options = Options { tasks_per_job: 8, runs: 3, ..small() };
        let case = Case { sizes: Sizes::Only64k, completion, fill: 99, reading: Reading::Build };
        let outcomes = run_cases(&options, &[case], Show::No).unwrap();
        let [before, one, patch_2, today] = &outcomes[..] else { panic!("four policies") };
        assert!(before.fallback[4] > 0, "not full enough: {before:?}");
        // These figures include the base of all three: one cluster for each that was consumed.
        assert!(before.scanned_per_large.mean > 5.0 * one.scanned_per_large.mean, "{before:?} {one:?}");
        // Scanning fewer clusters does not find more; patch 2 does.
        assert!(one.fallback[4] >= before.fallback[4]);
        for after in [patch_2, today] {
            assert!(
                before.scanned_per_large.mean > 2.0 * after.scanned_per_large.mean,
                "{before:?} {after:?}"
            );
            assert!(after.fallback[4] < before.fallback[4], "{before:?} {after:?}");
        }
    }
}

#[test]
fn only_a_device_that_is_not_synchronous_keeps_cached_slots() {
    let peak = |completion| outcomes(Sizes::Only64k, completion, 50)[2].peak_only_cached.max;
    assert_eq!(peak(Completion::Synchronous), 0.0);
    assert!(peak(Completion::Asynchronous) > 0.001);
}

#[test]
fn reading_much_makes_a_supply_of_slots_that_are_only_cached() {
    let peak = |reading| {
        let case = Case { sizes: Sizes::Only64k, completion: Completion::Asynchronous, fill: 97, reading };
        let outcomes = run_cases(&small(), &[case], Show::No).unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.taken_back_full.mean <= outcome.taken_back.mean));
        outcomes[1].peak_only_cached.mean
    };
    let (build, much) = (peak(Reading::Build), peak(Reading::Much));
    assert!(much > 2.0 * build && much > 0.02, "{build} {much}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let case =
        Case { sizes: Sizes::All, completion: Completion::Asynchronous, fill: 90, reading: Reading::Build };
    let options = Options { tasks_per_job: 2, ..small() };
    let run = || {
        let outcomes = run_cases(&options, &[case], Show::No).unwrap();
        outcomes.iter().map(|outcome| (outcome.swpout, outcome.fallback)).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn the_report_has_the_published_figures_on_the_left() {
    let options = Options { tasks_per_job: 1, scale: Scale(48), ..small() };
    let case = Case {
        sizes: Sizes::Only64k,
        completion: Completion::Synchronous,
        fill: 78,
        reading: Reading::Build,
    };
    let report = report(&options, &run_cases(&options, &[case], Show::No).unwrap(), &[]);
    let row = &report.tables[0].rows[0];
    assert_eq!(row[1..4], ["1793044/17653 0.97 %", "1789358/17813 0.99 %", "1813133/0 0 %"]);
    assert_eq!(row.len(), 8);
    assert!(report.text().contains("Not comparable:"));
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["results"]["outcomes"].as_array().unwrap().len(), 4);
    let file = std::env::temp_dir().join(format!("folioswap-lab-{}.svg", std::process::id()));
    report.plot(&file).unwrap();
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<rect").count() >= 3);
    assert!(report.plot(std::path::Path::new("/nonexistent/x.svg")).is_err());
}

#[test]
fn real_threads_replay_the_build_with_every_policy() {
    let options = Options { scale: Scale(24), tasks_per_job: 2, ..small() };
    let rows = contention(&options, Show::No).unwrap();
    assert!(rows.len() >= 3);
    for row in &rows {
        assert!(row.ns_per_operation > 1.0 && row.locks_per_operation > 1.0, "{row:?}");
        assert!(row.threads > 1 || row.contended == 0.0, "one thread found a lock taken: {row:?}");
    }
}

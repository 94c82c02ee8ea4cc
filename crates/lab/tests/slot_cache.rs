//! The experiment of series 2, small. Rates on a busy machine say little, so the test asserts only
//! facts that hold on any.

use folioswap_lab::experiments::slot_cache::*;
use folioswap_report::Show;
use folioswap_report::statistics::Verdict;

fn small() -> Options {
    Options { pairs: 3, threads: 2, task_mib: 8, touched_mib: 32, margin: 0.5 }
}

#[test]
fn the_cache_pins_slots_and_without_it_none_is_pinned() {
    let case = Case { pattern: Pattern::Random, order: 0, load: Load::SlotsOnly };
    let outcomes = run(&small(), &[case], Show::No).unwrap();
    let outcome = &outcomes.cases[0];
    assert_eq!(outcome.pinned[1..], [0; 3]);
    assert!(outcome.pinned[0] > 0 && outcome.pinned[0] <= 2 * 64, "{outcome:?}");
    assert_eq!(outcomes.pinned_96, Pinned { before: 96 * 63, after: 0 });
}

#[test]
fn every_case_runs_and_nothing_is_lost_by_a_wide_margin() {
    let outcomes = run(&small(), &CASES, Show::No).unwrap();
    assert_eq!(outcomes.cases.len(), CASES.len());
    for (case, outcome) in CASES.iter().zip(&outcomes.cases) {
        assert!(outcome.rates.iter().all(|rate| rate.mean > 0.0), "{outcome:?}");
        // Half as fast for certain would be a mistake in the allocator. A busy machine may look so
        // once; a mistake shows each time.
        let loses = |outcome: &Outcome| outcome.of_the_series().unwrap().verdict == Verdict::Loss;
        let again = || run(&small(), std::slice::from_ref(case), Show::No).unwrap();
        let lost = loses(outcome) && (0..9).all(|_| loses(&again().cases[0]));
        assert!(!lost, "{outcome:?}");
    }
    let report = report(&small(), &outcomes);
    assert!(report.text().contains("424.9") && report.text().contains("scale 1/1984"), "{}", report.text());
    assert_eq!(report.chart.bars.len(), CASES.len());
}

//! The experiment on tiers, small.

use folioswap_lab::experiments::tiers::*;
use folioswap_report::Show;

fn small() -> Options {
    Options { clusters: 64, cpus: 4, rounds: 1, runs: 1 }
}

/// The outcomes of a case, per CPU, per device and per mask.
fn outcomes(sharing: Sharing) -> [Sample; 3] {
    let outcomes = run(&small(), &[Case { sharing, fill: 60 }], Show::No).unwrap();
    let designs: Vec<_> = outcomes.iter().map(|outcome| outcome.design).collect();
    assert_eq!(designs, Design::ALL);
    [0, 1, 2].map(|design| outcomes[design].samples[0])
}

#[test]
fn without_masks_or_with_a_cpu_for_each_group_the_scope_of_a_mask_changes_nothing() {
    for sharing in [Sharing::NoMasks, Sharing::Pinned] {
        let [cpu, _, mask] = outcomes(sharing);
        assert_eq!(cpu.hint_hits_percent, mask.hint_hits_percent, "{sharing:?}");
        assert_eq!(cpu.clusters_for_one, mask.clusters_for_one, "{sharing:?}");
    }
}

#[test]
fn groups_of_two_tiers_on_one_cpu_overwrite_each_others_hint_in_the_kernels_design_alone() {
    let [cpu, device, mask] = outcomes(Sharing::TwoTiers);
    for other in [device, mask] {
        assert!(cpu.hint_hits_percent + 10.0 < other.hint_hits_percent, "{cpu:?} {other:?}");
        assert!(cpu.locks[2] > 1.2 * other.locks[2], "{cpu:?} {other:?}");
    }
}

#[test]
fn the_report_has_a_row_for_each_design() {
    let options = small();
    let all = cases();
    let outcomes = run(&options, &all[..2], Show::No).unwrap();
    let report = report(&options, &outcomes);
    assert_eq!(report.tables.len(), 2);
    assert!(report.tables.iter().all(|table| table.rows.len() == 3));
    assert!(report.text().contains("per CPU and mask"), "{}", report.text());
}

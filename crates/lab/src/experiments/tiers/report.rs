//! The report of the experiment on tiers.

use super::{Design, Options, Outcome, Sample, Sharing};
use folioswap_report::statistics::Summary;
use folioswap_report::{Bar, Chart, Report, Table, percent};

fn spread(summary: &Summary, digits: usize) -> String {
    format!("{:.digits$} ±{:.digits$}", summary.mean, summary.deviation)
}

fn table(chunk: &[Outcome]) -> Table {
    let case = chunk[0].case;
    let mut table = Table::new(
        format!("{}, {} % of the devices in use", case.sharing.name(), case.fill),
        &[
            "hints",
            "served by the CPU's cluster",
            "failed above order 0",
            "on the slower device in spite of room",
            "clusters for each one needed",
            "clusters scanned",
            "cluster locks",
            "list locks",
            "available locks",
            "ns",
        ],
    );
    for outcome in chunk {
        let mean = |figure: &dyn Fn(&Sample) -> f64| outcome.summary(figure).mean;
        table.rows.push(vec![
            outcome.design.name().to_owned(),
            percent(mean(&|sample| sample.hint_hits_percent), 100.0),
            percent(mean(&|sample| sample.failed_percent), 100.0),
            match case.sharing {
                Sharing::TwoTiersAndBoth => percent(mean(&|sample| sample.misplaced_percent), 100.0),
                _ => "-".to_owned(),
            },
            format!("{:.3}", mean(&|sample| sample.clusters_for_one)),
            format!("{:.3}", mean(&|sample| sample.scanned)),
            format!("{:.2}", mean(&|sample| sample.locks[0])),
            format!("{:.2}", mean(&|sample| sample.locks[1])),
            format!("{:.3}", mean(&|sample| sample.locks[2])),
            spread(&outcome.summary(|sample| sample.ns), 0),
        ]);
    }
    table
}

/// Makes the report.
pub fn report(options: &Options, outcomes: &[Outcome]) -> Report {
    let gib = f64::from(options.clusters) / 512.0;
    Report {
        experiment: "tiers",
        setup: vec![
            format!(
                "Tiers: two devices of {gib:.2} GiB, {} logical CPUs in turn; a CPU swaps out 32 pages of a group, then any group is next; folios of 4 kB (half), 16 kB and 64 kB (a quarter each); {} rounds over what is in use; n = {}.",
                options.cpus, options.rounds, options.runs
            ),
            "Where a CPU keeps its next offset: one hint per order for all groups (the kernel), one for each device (proposed in January 2026), or one for each mask (the last four). The order of lists is the kernel's, in all three (`nonfull-first` without discards inside).".to_owned(),
            "Scans and locks are per allocation, those of the frees included; ns per allocation or free, on one thread, the model's own time included, in runs of their own.".to_owned(),
        ],
        tables: outcomes.chunks(Design::ALL.len()).map(table).collect(),
        not_comparable: vec![
            "Nothing was published: the question is open.".to_owned(),
            "One thread drives all logical CPUs, so nobody waits for a lock; acquisitions stand for it.".to_owned(),
        ],
        results: serde_json::json!({ "options": options, "outcomes": outcomes }),
        chart: Chart {
            title: "Allocations that the CPU's own cluster served".to_owned(),
            axis: "%".to_owned(),
            bars: outcomes
                .iter()
                .map(|outcome| {
                    let summary = outcome.summary(|sample| sample.hint_hits_percent);
                    Bar {
                        group: format!("{}, {} %", outcome.case.sharing.name(), outcome.case.fill),
                        label: outcome.design.name().to_owned(),
                        value: summary.mean,
                        spread: (summary.min, summary.max),
                    }
                })
                .collect(),
        },
    }
}

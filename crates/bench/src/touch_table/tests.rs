use super::*;
use crate::engine::name_of;
use crate::folios::FolioCounts;
use folioswap_group::decisions::Scope;
use folioswap_peer::FolioSizes;

fn run(seconds: &[f64]) -> Figures {
    let timing = |(number, &seconds): (usize, &f64)| Timing {
        phase: ["fill", "random"][number % 2].to_owned(),
        process: 0,
        seconds,
        mb_per_s: 100.0 / seconds,
        touches_per_s: 1.0,
        p50_ns: if number == 0 { 0 } else { 2_500 * seconds as u64 },
        clock_ns: 40,
        resident: Some(Resident { bytes: 1000, huge_bytes: 125 * number as u64 }),
        ..Timing::default()
    };
    let phases = seconds.iter().enumerate().map(timing).collect();
    let folios = [(4, 9), (64, 1), (2048, 0)];
    let folios = folios.map(|(kib, swpin_fallback)| FolioCounts {
        kib,
        swpout: if kib == 64 { 7 } else { 0 },
        swpin_fallback,
        ..FolioCounts::default()
    });
    let folios = folios.into();
    Figures { phases, wall: 1.0, peak: Some(3 << 20), out_in: Some([7, 8]), folios, ..Figures::default() }
}

fn options() -> Comparison {
    Comparison {
        size: 8 << 20,
        kinds: vec![Kind::Two],
        phases: ["fill", "random", "fill"].map(str::to_owned).into(),
        threads: 1,
        touches: 10,
        writes: 0,
        advice: Some(Advice::HugePages),
        terms: Terms {
            limit: 4 << 20,
            rounds: 3,
            scope: Scope::Resident,
            variants: Vec::new(),
            kernel: vec![FolioSizes::Only4K, FolioSizes::All],
        },
    }
}

#[test]
fn medians_are_compared_with_the_kernels_best_and_failures_are_named() {
    let column = |engine, runs: &[[f64; 3]], failed: &[&str]| Column {
        engine,
        runs: runs.iter().map(|seconds| run(seconds)).collect(),
        failed: failed.iter().map(|why| (*why).to_owned()).collect(),
    };
    let columns = vec![
        column(Engine::Folioswap(Scope::Resident), &[[3.0, 1.0, 1.0], [2.0, 1.0, 1.0], [9.0, 1.0, 1.0]], &[]),
        column(Engine::Kernel(FolioSizes::Only4K), &[[4.0, 4.0, 4.0], [6.0, 4.0, 4.0]], &["killed"]),
        column(Engine::Kernel(FolioSizes::All), &[], &["one\nkilled"]),
    ];
    let report = report(&options(), &[(Kind::Two, columns)], Some("no zram"));
    let titles: Vec<&str> = report.tables.iter().map(|table| table.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "fill, 2:1 data",
            "random, 2:1 data",
            "fill again (2), 2:1 data",
            "The whole run, 2:1 data",
            "Folios by size, 2:1 data"
        ]
    );
    let rows = &report.tables[0].rows;
    assert_eq!(rows[0][..5], ["folioswap resident", "3.000", "2.000 to 9.000", "33", "0.60x"]);
    assert_eq!(rows[1][..2], ["kernel 4k", "5.000"]);
    assert_eq!(rows[2][..2], ["kernel all", "failed: killed"]);
    let random = &report.tables[1].rows;
    assert_eq!((rows[0][5].as_str(), random[0][5].as_str()), ("-", "2.5 (0.25x)"));
    assert_eq!((random[1][5].as_str(), random[1][8].as_str()), ("10.0", "12.5"));
    assert_eq!(report.tables[3].rows[1], ["kernel 4k", "1.00", "3", "7", "8", "12.5", "1 of 3"]);
    assert_eq!(report.tables[4].rows[1], ["kernel 4k", "64", "7", "0", "0", "1", "12.5"]);
    assert_eq!(report.tables[4].rows.len(), 2);
    assert!(report.setup.iter().any(|line| line.contains("takes 40 ns")));
    assert!(report.setup.iter().any(|line| line == "kernel: absent, no zram."));
    assert_eq!(report.chart.bars.len(), 6);
    assert_eq!(name_of(FolioSizes::All), "all");
}

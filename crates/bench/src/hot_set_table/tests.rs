use super::*;
use crate::touch::Timing;
use folioswap_group::decisions::Scope;
use folioswap_peer::FolioSizes;

fn run(from_store: u64, seconds: f64) -> Figures {
    let hot = HotTouches { touches: 1000, faults: 100, from_store, unclear: 0 };
    let timing = Timing { seconds, p99_ns: 4_000 * seconds as u64, hot: Some(hot), ..Timing::default() };
    Figures { phases: vec![timing.clone(), timing], ..Figures::default() }
}

#[test]
fn what_was_kept_is_a_part_of_all_hot_touches() {
    let column = |engine, runs: Vec<Figures>| Column { engine, runs, failed: vec!["killed".to_owned()] };
    let columns = vec![
        column(Engine::Folioswap(Scope::Resident), vec![run(50, 2.0), run(1, 2.0), run(3, 2.0)]),
        column(Engine::Kernel(FolioSizes::Only4K), vec![run(400, 4.0)]),
        column(Engine::Kernel(FolioSizes::All), Vec::new()),
        column(
            Engine::FolioswapWith(Scope::Resident, vec!["--swap-max".to_owned(), "0".to_owned()]),
            vec![run(0, 3.0)],
        ),
    ];
    let options = Comparison {
        terms: Terms {
            limit: 64 << 20,
            rounds: 3,
            scope: Scope::Resident,
            variants: Vec::new(),
            kernel: vec![FolioSizes::Only4K, FolioSizes::All],
        },
        hot: 32 << 20,
        scan: 512 << 20,
        kinds: vec![Kind::Two],
        touches_per_page: 4,
    };
    let report = report(&options, &[(Kind::Two, columns)], None);
    assert_eq!(report.tables.len(), 3);
    let rows = &report.tables[1].rows;
    let ours = ["folioswap resident", "99.70", "95.00 to 99.90", "10.00", "2.000", "0.50x"];
    assert_eq!(rows[0][..6], ours);
    assert_eq!(rows[0][9], "8.0 (0.50x)");
    assert_eq!(rows[1][..3], ["kernel 4k", "60.00", "60.00 to 60.00"]);
    assert_eq!(rows[2][1], "failed: killed");
    assert_eq!(rows[3][..2], ["folioswap resident --swap-max 0", "100.00"]);
    assert_eq!(rows[3][5], "0.75x");
    assert!(report.setup[0].contains("32 MiB (0.50 of the limit, 64 MiB), and a scan of 512 MiB (8.0 times"));
    assert_eq!(report.chart.bars.len(), 6);
}

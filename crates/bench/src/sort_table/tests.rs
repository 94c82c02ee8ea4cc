use super::*;
use crate::touch::Timing;
use folioswap_group::decisions::Scope;
use folioswap_peer::FolioSizes;

fn run(seconds: f64, output: &str) -> Figures {
    let timing = Timing { seconds, output: Some(output.to_owned()), ..Timing::default() };
    Figures { phases: vec![timing], ..Figures::default() }
}

#[test]
fn a_wrong_output_is_a_failure_and_killed_runs_are_counted() {
    let column = |engine, runs: Vec<Figures>, failed: &[&str]| Column {
        engine,
        runs,
        failed: failed.iter().map(|why| (*why).to_owned()).collect(),
    };
    let silent = Figures { phases: vec![Timing::default()], ..Figures::default() };
    let mut columns = vec![
        column(Engine::Unlimited, vec![run(0.5, "a"), run(0.5, "a")], &[]),
        column(Engine::Folioswap(Scope::Resident), vec![run(2.0, "a"), run(0.1, "b"), silent], &[]),
        column(Engine::Kernel(FolioSizes::Only4K), vec![run(4.0, "a")], &["killed", "killed"]),
        column(Engine::Kernel(FolioSizes::All), Vec::new(), &["long\nkilled"]),
    ];
    fail_wrong_outputs(&mut columns);
    let kernel = vec![FolioSizes::Only4K, FolioSizes::All];
    let terms = Terms { limit: 60 << 20, rounds: 3, scope: Scope::Resident, variants: Vec::new(), kernel };
    let options = Comparison { terms: vec![terms], lines: 1_700_000, parallel: 2, buffer: 600 << 20 };
    let report = report(&options, &[Within { limit: 60 << 20, columns }], Vec::new());
    assert_eq!(report.tables[0].title, "Within 60 MiB");
    let rows = &report.tables[0].rows;
    assert_eq!(rows[1][..5], ["folioswap resident", "2.00", "2.00 to 2.00", "4.0x", "0.50x"]);
    assert_eq!(rows[1][9], "2 of 3: its output is wrong");
    assert_eq!((rows[2][1].as_str(), rows[2][9].as_str()), ("4.00", "2 of 3: killed"));
    assert_eq!((rows[3][1].as_str(), rows[3][9].as_str()), ("-", "1 of 1: killed"));
    assert!(report.setup[0].contains("sort --parallel=2 -S 600M of 1700000 lines (90.1 MB)"));
    assert_eq!(report.chart.bars.len(), 3);
}

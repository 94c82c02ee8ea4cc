use super::*;
use crate::folios::FolioCounts;
use crate::touch::Timing;
use folioswap_group::decisions::Scope;
use folioswap_peer::FolioSizes;

#[test]
fn processes_add_up_and_ratios_are_to_the_kernels_best() {
    let run = |rates: &[f64], cpu, out| {
        let timing = |(process, &mb_per_s): (usize, &f64)| Timing {
            phase: "access".to_owned(),
            process,
            mb_per_s,
            ..Timing::default()
        };
        let phases = rates.iter().enumerate().map(timing).collect();
        let folios =
            vec![FolioCounts { kib: 64, swpout: out / 16, swpout_fallback: 1, ..FolioCounts::default() }];
        Figures { phases, wall: 1.0, cpu: Some(cpu), out_in: Some([out, 0]), folios, ..Figures::default() }
    };
    let columns = [
        Column {
            engine: Engine::Folioswap(Scope::Resident),
            runs: vec![run(&[100.0, 140.0], 1.0, 1_000_000)],
            failed: Vec::new(),
        },
        Column {
            engine: Engine::Kernel(FolioSizes::Only4K),
            runs: vec![run(&[60.0, 60.0], 4.0, 2_000_000)],
            failed: vec!["killed".to_owned()],
        },
        Column {
            engine: Engine::Kernel(FolioSizes::All),
            runs: vec![run(&[40.0], 9.0, 0)],
            failed: Vec::new(),
        },
    ];
    let options = Comparison {
        usemem: usemem::Options {
            size: 1 << 30,
            processes: 2,
            step: 8,
            random: true,
            sync_rw: true,
            sync_free: false,
            init_time: true,
            check: false,
        },
        terms: Terms {
            limit: 1 << 29,
            rounds: 2,
            scope: Scope::Resident,
            variants: Vec::new(),
            kernel: vec![FolioSizes::Only4K, FolioSizes::All],
        },
    };
    let report = report(&options, &columns, None);
    let rows = &report.tables[0].rows;
    assert_eq!(rows[0][1..8], ["240", "240 to 240", "2.00x", "1.00", "1.00", "1.00", "0.50x"]);
    assert_eq!((rows[1][6].as_str(), rows[1][11].as_str()), ("2.00", "1 of 2"));
    assert_eq!(rows[2][6], "-");
    assert!(report.setup[0].contains("at random (-R), 2 processes of 1024 MiB within 512 MiB"));
    assert_eq!(report.tables[1].rows[0][1..4], ["64", "62500", "1"]);
    let words = arguments(&options.usemem);
    assert_eq!(words, ["1073741824", "--nproc=2", "--step=8", "--random", "--sync-rw", "--init-time"]);
}

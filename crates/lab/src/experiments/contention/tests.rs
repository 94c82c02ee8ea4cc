use super::load::usemem;
use super::*;
use crate::events::CostsFile;
use folioswap_trace::Event;

/// What a task of `usemem` holds at each moment, by the trace alone.
#[test]
fn usemem_frees_every_slot_that_it_takes_and_no_other() {
    for (pages, resident) in [(512, 64), (100, 60), (64, 0), (33, 32)] {
        let trace = usemem(3, pages, resident);
        let mut held = std::collections::HashSet::new();
        let mut most = 0;
        for record in &trace.records {
            match record.event {
                Event::Alloc { entry, .. } => assert!(held.insert(entry), "{entry} was taken twice"),
                Event::Free { entry, .. } => assert!(held.remove(&entry), "{entry} was not taken"),
                _ => panic!("usemem only takes and frees"),
            }
            most = most.max(held.len() as u64);
        }
        assert!(held.is_empty(), "{} slots are left", held.len());
        assert_eq!(most, 3 * (pages - resident), "what is not resident is swapped out");
    }
}

fn quick(series: Series) -> Options {
    Options { series: vec![series], cpus: vec![24], tasks_per_job: 1, scale: 512, fills: vec![97] }
}

#[test]
fn the_same_simulation_gives_the_same_figures() {
    let costs = CostsFile::kept().costs;
    let run = || run(&quick(Series::RoundRobin), &costs, Show::No).unwrap();
    let (first, second) = (run(), run());
    assert_eq!(serde_json::json!(first), serde_json::json!(second));
}

#[test]
fn four_devices_in_turn_wait_less_for_list_locks_than_one_after_the_other() {
    let costs = CostsFile::kept().costs;
    let mut options = quick(Series::RoundRobin);
    options.cpus = vec![96];
    let outcomes = run(&options, &costs, Show::No).unwrap();
    let lists = |step: usize| {
        let outcome = outcomes
            .iter()
            .find(|outcome| outcome.step == step && outcome.assumption == Assumption::NoProgram)
            .unwrap();
        let locks = &outcome.replayed.simulation.locks;
        locks.iter().filter(|lock| lock.name.starts_with("lists")).map(|lock| lock.wait_s).sum::<f64>()
    };
    assert!(lists(1) < lists(0), "after {} s, before {} s", lists(1), lists(0));
}

#[test]
fn the_report_has_a_row_for_each_step_and_assumption() {
    let options = quick(Series::SlotCache);
    let file = CostsFile::kept();
    let outcomes = run(&options, &file.costs, Show::No).unwrap();
    let report = report(&options, &file, &outcomes);
    assert_eq!(report.tables[0].rows.len(), 3 * 4);
    assert_eq!(report.tables[0].rows[0][2], "6445.69");
    assert_eq!(report.tables[0].rows[1][3], "0.994");
}

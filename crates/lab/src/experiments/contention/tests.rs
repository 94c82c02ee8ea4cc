use super::load::{load, usemem};
use super::*;
use crate::events::CostsFile;
use crate::policies::PolicyName;
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
    Options {
        series: vec![series],
        cpus: vec![24],
        tasks_per_job: 1,
        scale: 512,
        fills: vec![FillChoice::Peak(97)],
    }
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

/// On a device as full as the published one folios find no room as often as there, and the walks of
/// all fragment clusters meet at the list lock; one fragment cluster each, and they do not.
#[test]
fn a_device_as_full_as_the_published_one_makes_the_list_lock_hot_before_the_series() {
    let options = Options { fills: vec![FillChoice::Published], ..quick(Series::ClusterScan) };
    let case = cases(&options).into_iter().find(|case| case.title.contains("brd")).unwrap();
    let load = load(&options, &case).unwrap();
    let run = |policy| {
        let (devices, nodes) = (load.devices.clone(), load.nodes.clone());
        let costs = CostsFile::kept().costs;
        let replay = SimulatedReplay { policy, devices, nodes, costs, program_time: 1.0, device_lock: 0.0 };
        let replayed = simulate(&load.prepared, &replay).unwrap();
        let locks = &replayed.simulation.locks;
        let lists = locks.iter().find(|lock| lock.name == "lists of device 0").unwrap().wait_s;
        let (failed, out) = (replayed.fallback[4] as f64, replayed.allocated[4] as f64);
        (failed / (failed + out), lists)
    };
    let (before, patch_1) = (run(PolicyName::ScanAll), run(PolicyName::ScanOne));
    assert!((0.04..0.14).contains(&before.0), "{} fail, published 0.083", before.0);
    assert!(before.1 > 4.0 * patch_1.1, "waits: before {} s, patch 1 {} s", before.1, patch_1.1);
}

/// The loads of one medium keep their order: what is fuller fails more.
#[test]
fn the_published_cases_are_sized_by_what_failed_there() {
    let options = Options { fills: vec![FillChoice::Published], ..quick(Series::ClusterScan) };
    let pages = |title: &str| {
        let case = cases(&options).into_iter().find(|case| case.title.contains(title)).unwrap();
        load(&options, &case).unwrap().devices[0].pages.unwrap()
    };
    assert!(pages("zram as the published 8 G") < pages("64 kB, zram as the published 10 G"));
}

/// A device's own lock, which the kernel's zram has, tells one device after the other from four in
/// turn.
#[test]
fn a_lock_within_the_devices_shows_what_taking_turns_saves() {
    let costs = CostsFile::kept().costs;
    let mut options = quick(Series::RoundRobin);
    options.cpus = vec![96];
    let outcomes = run(&options, &costs, Show::No).unwrap();
    let system = |assumption, step| {
        let found = |outcome: &&Outcome| outcome.step == step && outcome.assumption == assumption;
        outcomes.iter().find(found).unwrap().replayed.simulation.times.system()
    };
    let ratio = |assumption| system(assumption, 1) / system(assumption, 0);
    assert!((ratio(Assumption::AsMeasured) - 1.0).abs() < 0.03);
    assert!(ratio(Assumption::LongDeviceLock) < 0.9, "{}", ratio(Assumption::LongDeviceLock));
}

//! Traces: generated, written, read, replayed and fitted, and the errors of bad ones.

use folioswap_lab::build::{BuildParameters, Scale, Sizes, Stopped};
use folioswap_lab::policies::{Locks, PolicyName};
use folioswap_lab::replay::*;
use folioswap_lab::traces::{Trace, TraceError};
use folioswap_lab::{fit, generate};
use folioswap_slots::DeviceFlags;
use folioswap_trace::{Event, Header, Record};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn small(sizes: Sizes) -> BuildParameters {
    BuildParameters { tasks: 24, ..BuildParameters::published(sizes).scaled(Scale(16)) }
}

fn options(policy: PolicyName, device: &str, threads: u32) -> Replay {
    let size = |text: &str| text.parse().ok();
    let devices = vec![Device::parse(device, size).unwrap()];
    Replay { policy, devices, threads, cpus: None, locks: Locks::Uncounted, moments: 0 }
}

fn allocations(trace: &Trace) -> [u64; 10] {
    let mut counts = [0; 10];
    for record in &trace.records {
        if let Event::Alloc { order, .. } = record.event {
            counts[usize::from(order)] += 1;
        }
    }
    counts
}

struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        File(std::env::temp_dir().join(format!("folioswap-lab-{}-{name}", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn a_written_trace_is_the_generated_one() {
    let file = File::new("written");
    let parameters = small(Sizes::All);
    let written = generate::to_file(&parameters, DeviceFlags::NONE, 5, &file.0, |_| Stopped::No).unwrap();
    let trace = Trace::read(&file.0).unwrap();
    assert_eq!(trace.records.len() as u64, written);
    assert_eq!(trace, generate::in_memory(&parameters, DeviceFlags::NONE, 5).unwrap());
    assert_ne!(trace, generate::in_memory(&parameters, DeviceFlags::NONE, 6).unwrap());
    assert!(trace.records.iter().any(|record| matches!(record.event, Event::Retain { .. })));
    assert!(trace.records.iter().any(|record| matches!(record.event, Event::Reuse { .. })));
}

/// A trace that is prepared while it is read is the same as one that was read first, and so are the
/// errors of a damaged file.
#[test]
fn a_trace_is_prepared_while_it_is_read() {
    let file = File::new("stream");
    generate::to_file(&small(Sizes::All), DeviceFlags::NONE, 5, &file.0, |_| Stopped::No).unwrap();
    for retention in [Retention::AsRecorded, Retention::Never] {
        let read = Prepared::read(&file.0, retention).unwrap();
        let whole = Prepared::new(&Trace::read(&file.0).unwrap(), retention).unwrap();
        assert_eq!(format!("{read:?}"), format!("{whole:?}"));
    }
    let good = std::fs::read(&file.0).unwrap();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&file.0, bytes).unwrap();
        let read = Prepared::read(&file.0, Retention::Never).unwrap_err().to_string();
        assert_eq!(read, Trace::read(&file.0).unwrap_err().to_string());
    };
    damaged(&|bytes| bytes.truncate(good.len() - 5));
    damaged(&|bytes| bytes.truncate(folioswap_trace::HEADER_BYTES));
    damaged(&|bytes| bytes.truncate(3));
    damaged(&|bytes| bytes[0] ^= 255);
    damaged(&|bytes| bytes[folioswap_trace::HEADER_BYTES + 16 * 7..][..16].fill(255));
    // Two defects of one record: a CPU that the trace does not have, and an unknown cause.
    damaged(&|bytes| [2, 16].iter().for_each(|at| bytes[folioswap_trace::HEADER_BYTES + at] = 255));
    std::fs::remove_file(&file.0).unwrap();
    let absent = Prepared::read(&file.0, Retention::Never).unwrap_err().to_string();
    assert_eq!(absent, Trace::read(&file.0).unwrap_err().to_string());
    std::fs::write(&file.0, []).unwrap();
}

#[test]
fn with_room_every_allocation_of_the_trace_succeeds_whoever_replays_it() {
    for (flags, device) in [(DeviceFlags::SYNCHRONOUS, "zram"), (DeviceFlags::NONE, "ram,size=4294967296")] {
        let trace = generate::in_memory(&small(Sizes::All), flags, 1).unwrap();
        let prepared = Prepared::new(&trace, Retention::AsRecorded).unwrap();
        assert_eq!(prepared.odd, Odd::default());
        for policy in [PolicyName::Current, PolicyName::SlotCache, PolicyName::FreePerSlot] {
            for threads in [1, 2, 3] {
                let result = replay(&prepared, &options(policy, device, threads)).unwrap();
                // A zram with a quarter to spare has no slots for every order 9; a large one has.
                if device != "zram" {
                    assert_eq!(result.allocated, allocations(&trace), "{policy} {threads}");
                    assert_eq!(result.fallback, [0; 10]);
                }
                assert_eq!(result.operations, prepared.len() as u64);
            }
        }
    }
}

#[test]
fn the_replay_tells_policies_apart() {
    let parameters = BuildParameters { tasks: 72, ..small(Sizes::All) };
    let trace = generate::in_memory(&parameters, DeviceFlags::SYNCHRONOUS, 1).unwrap();
    let prepared = Prepared::new(&trace, Retention::AsRecorded).unwrap();
    let device = format!("zram,size={}", prepared.slots_peak * 4096 * 125 / 100);
    let failed = |policy| {
        let result = replay(&prepared, &options(policy, &device, 1)).unwrap();
        result.fallback[7..].iter().sum::<u64>() as f64
    };
    let (before, after) = (failed(PolicyName::ScanAll), failed(PolicyName::NonfullFirst));
    assert!(before > 2.0 * after && before > 5.0, "before {before}, after {after}");
}

/// The replay runs discards as the kernel's work item does. On a device that discards free clusters
/// come first under every policy, so as many folios find no room as with that order and without
/// discards; no page is without a slot.
#[test]
fn a_device_that_discards_gets_its_discards_and_its_room_back() {
    let parameters = BuildParameters { tasks: 72, ..small(Sizes::Only64k) };
    let trace = generate::in_memory(&parameters, DeviceFlags::SYNCHRONOUS, 1).unwrap();
    let prepared = Prepared::new(&trace, Retention::AsRecorded).unwrap();
    let size = prepared.slots_peak * 4096 * 110 / 100;
    let on = |policy, device: &str, threads| replay(&prepared, &options(policy, device, threads)).unwrap();
    let failed = |replayed: &Replayed| {
        let (out, fallback) = (replayed.allocated[4] as f64, replayed.fallback[4] as f64);
        fallback / (out + fallback)
    };
    let free_first = on(PolicyName::ScanOne, &format!("zram,size={size}"), 1);
    assert_eq!(free_first.clusters_discarded, 0);
    for (policy, threads) in [
        (PolicyName::Current, 1),
        (PolicyName::Current, 2),
        (PolicyName::ScanOne, 1),
        (PolicyName::NonfullFirst, 1),
    ] {
        let with = on(policy, &format!("zram,size={size},discard"), threads);
        assert!(with.clusters_discarded > 100, "{policy}: {with:?}");
        assert_eq!(with.fallback[0], 0, "{policy}: {with:?}");
        assert!((failed(&with) - failed(&free_first)).abs() < 0.02, "{policy}: {with:?} {free_first:?}");
        for replayed in [&with, &free_first] {
            let pages: u64 = replayed.devices.iter().map(|(pages, _)| *pages).sum();
            let written = replayed.slots_ever_written;
            assert!(written >= prepared.slots_peak && written <= pages, "{policy}: {replayed:?}");
        }
    }
}

/// Nonfull clusters first write over fewer slots than free ones first, which is why a device that
/// does not discard has them.
#[test]
fn nonfull_clusters_first_write_over_fewer_slots() {
    let trace = generate::in_memory(&small(Sizes::Only64k), DeviceFlags::SYNCHRONOUS, 1).unwrap();
    let prepared = Prepared::new(&trace, Retention::AsRecorded).unwrap();
    let device = format!("zram,size={}", prepared.slots_peak * 4096 * 4);
    let written = |policy| replay(&prepared, &options(policy, &device, 1)).unwrap().slots_ever_written;
    let (free_first, nonfull_first) = (written(PolicyName::ScanOne), written(PolicyName::NonfullFirst));
    assert!(nonfull_first < free_first, "{nonfull_first} {free_first}");
}

/// Tables of a device are mapped, not written: a replay on 1 TiB uses what its trace does.
#[test]
fn a_replay_on_a_terabyte_takes_the_memory_of_its_trace() {
    let trace = generate::in_memory(&small(Sizes::Only64k), DeviceFlags::SYNCHRONOUS, 1).unwrap();
    let prepared = Prepared::new(&trace, Retention::AsRecorded).unwrap();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let device = || folioswap_lab::memory::Memory::zeroed(3 << 30);
    let before = resident();
    let mapped = device();
    let grown = resident().saturating_sub(before);
    drop(mapped);
    assert!(grown < 512 << 10, "3 GiB of tables took {grown} KiB");
    let result = replay(&prepared, &options(PolicyName::Current, "zram,size=1099511627776", 1)).unwrap();
    assert_eq!(result.fallback, [0; 10]);
}

#[test]
fn synchronous_devices_keep_nothing() {
    let trace = generate::in_memory(&small(Sizes::Only64k), DeviceFlags::NONE, 1).unwrap();
    let kept = Prepared::new(&trace, Retention::AsRecorded).unwrap();
    let never = Prepared::new(&trace, Retention::Never).unwrap();
    assert_eq!((kept.odd, never.odd), (Odd::default(), Odd::default()));
    let reused = trace.records.iter().filter(|record| matches!(record.event, Event::Reuse { .. })).count();
    let allocated = |prepared| {
        let result = replay(prepared, &options(PolicyName::Current, "zram,size=8589934592", 1)).unwrap();
        result.allocated.iter().sum::<u64>()
    };
    assert_eq!(allocated(&never) - allocated(&kept), reused as u64);
}

#[test]
fn a_fit_finds_the_parameters_that_a_trace_was_made_of() {
    let parameters = BuildParameters { tasks: 120, ..small(Sizes::Only64k) };
    let trace = generate::in_memory(&parameters, DeviceFlags::SYNCHRONOUS, 3).unwrap();
    let fit = fit::fit(&trace);
    let found = &fit.parameters;
    assert_eq!((found.cpus, found.jobs), (parameters.cpus, parameters.jobs));
    assert!(found.check().is_ok());
    // Nearly every task is swapped out in part and ends in one burst.
    assert!((80..=130).contains(&fit.bursts), "{fit:?}");
    let large = |weights: &[f64; 10]| weights[4] / (weights[0] + weights[4]);
    assert!(large(&found.order_weights) > 0.1 * large(&parameters.order_weights), "{fit:?}");
    assert!(found.order_weights[4] > 0.0 && found.order_weights[5] == 0.0);
    assert!(found.task_pages_median > 0.3 * parameters.task_pages_median, "{fit:?}");
    assert!(found.task_pages_median < 1.2 * parameters.task_pages_median, "{fit:?}");
    // The fit makes a trace again. (The limit and the files are not in a trace.)
    let again = BuildParameters {
        tasks: 12,
        limit_pages: parameters.limit_pages,
        source_pages: parameters.source_pages,
        ..found.clone()
    };
    assert!(!generate::in_memory(&again, DeviceFlags::SYNCHRONOUS, 1).unwrap().records.is_empty());
}

#[test]
fn a_split_folio_of_the_recording_may_find_room_in_the_replay() {
    let mut records = vec![Record { tick: 0, event: Event::Fallback { cpu: 0, order: 2 } }];
    records.extend(
        (0..4)
            .map(|step| Record { tick: 0, event: Event::Alloc { cpu: 0, order: 0, entry: 100 + 7 * step } }),
    );
    let trace = Trace::plain(Header { tick_ns: 1, cpus: 1 }, records);
    let prepared = Prepared::new(&trace, Retention::AsRecorded).unwrap();
    let result = replay(&prepared, &options(PolicyName::Current, "zram", 1)).unwrap();
    assert_eq!((result.allocated[2], result.allocated[0], result.fallback[2]), (1, 0, 0));
    assert_eq!(result.devices[0].1, 4);
}

#[test]
fn members_have_slots_of_their_own_and_end_with_them() {
    let alloc = Event::Alloc { cpu: 0, order: 0, entry: 5 };
    let events =
        [Event::Member { member: 7 }, alloc, Event::Member { member: 8 }, alloc, Event::End { member: 7 }];
    let records = events.map(|event| Record { tick: 0, event }).to_vec();
    let trace = Trace::plain(Header { tick_ns: 1, cpus: 1 }, records);
    let prepared = Prepared::new(&trace, Retention::AsRecorded).unwrap();
    assert_eq!((prepared.odd, prepared.slots_peak), (Odd::default(), 2));
    let result = replay(&prepared, &options(PolicyName::Current, "zram", 2)).unwrap();
    assert_eq!(result.devices[0].1, 1);
}

fn prepared(events: &[Event]) -> Prepared {
    let records = events.iter().map(|event| Record { tick: 0, event: *event }).collect();
    Prepared::new(&Trace::plain(Header { tick_ns: 1, cpus: 1 }, records), Retention::AsRecorded).unwrap()
}

#[test]
fn what_a_fork_shares_is_free_when_both_have_freed_it() {
    let alloc = |entry| Event::Alloc { cpu: 0, order: 0, entry };
    let free = |entry| Event::Free { cpu: 0, slots: 1, entry };
    let member = |member| Event::Member { member };
    let used = |events: &[Event]| {
        let prepared = prepared(events);
        assert_eq!(prepared.odd, Odd::default());
        let result = replay(&prepared, &options(PolicyName::Current, "zram", 1)).unwrap();
        (prepared.slots_peak, result.devices[0].1)
    };
    let forked = [alloc(5), alloc(6), Event::Fork { member: 1 }];
    assert_eq!(used(&forked), (2, 2));
    assert_eq!(used(&[&forked[..], &[free(5), free(6)]].concat()), (2, 2));
    assert_eq!(used(&[&forked[..], &[free(5), member(1), free(5), free(6)]].concat()), (2, 1));
    // Both hold this entry, but each has a slot of its own there from now on.
    let both = [free(5), alloc(5), member(1), alloc(7)];
    assert_eq!(used(&[&forked[..], &both].concat()), (4, 4));
    let ends = [Event::End { member: 0 }, Event::End { member: 1 }];
    assert_eq!(used(&[&forked[..], &both, &ends[..1]].concat()), (4, 3));
    assert_eq!(used(&[&forked[..], &both, &ends].concat()), (4, 0));
    // A slot that one of the two keeps in memory stays the other's.
    let kept = [Event::Retain { cpu: 0, slots: 1, entry: 5 }, Event::Reuse { cpu: 0, slots: 1, entry: 5 }];
    assert_eq!(used(&[&forked[..], &kept, &ends].concat()), (2, 0));
}

#[test]
fn bad_files_are_named() {
    let parse = |bytes: &[u8]| Trace::parse(Path::new("x"), bytes).unwrap_err();
    let header = Header { tick_ns: 1, cpus: 2 }.encode();
    let record = |event| Record { tick: 0, event }.encode().unwrap();
    let good = record(Event::Alloc { cpu: 1, order: 0, entry: 9 });
    assert!(matches!(parse(b"ELF"), TraceError::Header { .. }));
    assert!(matches!(
        parse(&[header.as_slice(), &good[..9]].concat()),
        TraceError::CutOff { whole: 0, left: 9, .. }
    ));
    assert!(matches!(
        parse(&[header.as_slice(), &[0xff; 16]].concat()),
        TraceError::Record { number: 1, .. }
    ));
    let far = record(Event::Alloc { cpu: 2, order: 0, entry: 9 });
    assert!(matches!(parse(&[header.as_slice(), &far].concat()), TraceError::Cpu { cpu: 2, cpus: 2, .. }));
    assert!(matches!(parse(&header), TraceError::Empty { .. }));
    assert!(Trace::parse(Path::new("x"), &[header.as_slice(), &good].concat()).is_ok());
    let missing = Trace::read(Path::new("/nonexistent/trace")).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/trace"));
}

#[test]
fn parameters_that_make_no_build_are_named() {
    let bad = |change: &dyn Fn(&mut BuildParameters)| {
        let mut parameters = small(Sizes::All);
        change(&mut parameters);
        generate::in_memory(&parameters, DeviceFlags::NONE, 1).unwrap_err().to_string()
    };
    assert!(bad(&|p| p.cpus = 0).contains("cpus"));
    assert!(bad(&|p| p.order_weights = [0.0; 10]).contains("order_weights"));
    assert!(bad(&|p| p.task_pages_median = f64::NAN).contains("task_pages_median"));
    assert!(bad(&|p| p.write_share = 1.5).contains("write_share"));
    assert!(bad(&|p| p.swapin_refused[4] = -1.0).contains("swapin_refused"));
}

fn event() -> impl Strategy<Value = Event> {
    let range = (0u64..3, 1u64..1500, 1u16..64)
        .prop_map(|(device, offset, slots)| (slots.min(512 - (offset % 512) as u16), device << 51 | offset));
    prop_oneof![
        4 => (0u16..4, 0u8..6, 1u64..48).prop_map(|(cpu, order, at)| Event::Alloc { cpu, order, entry: at << order }),
        1 => (0u16..4, 1u8..6).prop_map(|(cpu, order)| Event::Fallback { cpu, order }),
        3 => (0u16..4, range.clone()).prop_map(|(cpu, (slots, entry))| Event::Free { cpu, slots, entry }),
        2 => (0u16..4, range.clone()).prop_map(|(cpu, (slots, entry))| Event::Retain { cpu, slots, entry }),
        2 => (0u16..4, range).prop_map(|(cpu, (slots, entry))| Event::Reuse { cpu, slots, entry }),
        1 => (0u32..3).prop_map(|member| Event::Member { member }),
        1 => (0u32..3).prop_map(|member| Event::End { member }),
        1 => (0u32..3).prop_map(|member| Event::Fork { member }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any sequence of valid records, however senseless, is replayed without a panic or a deadlock,
    /// even on a device that is too small.
    #[test]
    fn any_trace_is_replayed(events in prop::collection::vec(event(), 1..300), pages in 600u64..4000, threads in 1u32..4) {
        let records = events.into_iter().map(|event| Record { tick: 0, event }).collect();
        let trace = Trace::plain(Header { tick_ns: 1, cpus: 4 }, records);
        for retention in [Retention::AsRecorded, Retention::Never] {
            let prepared = Prepared::new(&trace, retention).unwrap();
            let device = format!("ram,size={}", pages * 4096);
            let result = replay(&prepared, &options(PolicyName::Current, &device, threads)).unwrap();
            prop_assert!(result.devices[0].1 <= pages);
            fit::fit(&trace);
        }
    }
}

/// What a replay looked like meanwhile adds up to what it came to, and looking changes nothing.
#[test]
fn moments_of_a_replay_add_up_to_it() {
    let trace = generate::in_memory(&small(Sizes::All), DeviceFlags::SYNCHRONOUS, 3).unwrap();
    let prepared = Prepared::new(&trace, Retention::Never).unwrap();
    let size = format!("zram,size={}", (prepared.slots_peak * 100 / 97 + 1) << 12);
    let unseen = options(PolicyName::ScanAll, &size, 1);
    let seen = Replay { moments: 50, ..unseen.clone() };
    let (unseen, seen) = (replay(&prepared, &unseen).unwrap(), replay(&prepared, &seen).unwrap());
    assert_eq!(
        (unseen.allocated, unseen.fallback, unseen.clusters_scanned),
        (seen.allocated, seen.fallback, seen.clusters_scanned)
    );
    assert!(unseen.moments.is_none());
    let moments = seen.moments.unwrap();
    let all = &moments.moments;
    assert_eq!(all.len(), 51);
    assert_eq!((all[0].operations, all[0].slots_in_use), (0, 0));
    assert_eq!(all.last().unwrap().operations, seen.operations);
    assert!(all.is_sorted_by_key(|moment| moment.operations));
    for order in 0..10 {
        let sum = |of: fn(&Moment) -> &[u64; 10]| all.iter().map(|moment| of(moment)[order]).sum::<u64>();
        assert_eq!(sum(|moment| &moment.allocated), seen.allocated[order]);
        assert_eq!(sum(|moment| &moment.fallback), seen.fallback[order]);
    }
    assert!(all.is_sorted_by_key(|moment| moment.slots_ever_written));
    assert_eq!(all.last().unwrap().slots_ever_written, seen.slots_ever_written);
    let cells = moments.clusters.div_ceil(moments.clusters_per_cell);
    for moment in all {
        assert_eq!(moment.used_percent.len(), cells as usize);
        let Lists { never_used, free, discard, nonfull, frag, full } = moment.lists;
        // Each logical CPU may hold a cluster of each order.
        let listed = never_used + free + discard + nonfull + frag + full;
        let held = seen.cpus * 10;
        assert!(
            (moments.clusters.saturating_sub(held)..=moments.clusters + 2).contains(&listed),
            "{moment:?}"
        );
        // Each cell is rounded down, and the first slot of the device is bad.
        let (per_cell, pages) = (u64::from(moments.clusters_per_cell) * 512, seen.devices[0].0 + 1);
        let sizes = (0..u64::from(cells)).map(|cell| per_cell.min(pages - cell * per_cell));
        let used: u64 =
            moment.used_percent.iter().zip(sizes).map(|(&part, size)| u64::from(part) * size / 100).sum();
        let most = moment.slots_in_use + 1;
        let least = most.saturating_sub(u64::from(cells) * (per_cell / 100 + 2));
        assert!((least..=most).contains(&used), "{used} of {least} to {most}");
    }
    let several = Replay { threads: 2, moments: 1, ..options(PolicyName::Current, "zram", 2) };
    assert!(matches!(replay(&prepared, &several), Err(ReplayError::MomentsOfThreads)));
}

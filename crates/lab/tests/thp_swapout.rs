//! The experiment of series 3, small: counts and bytes, which are the same on any machine. Times
//! are not judged.

use folioswap_lab::allocator::Allocator;
use folioswap_lab::experiments::thp_swapout::*;
use folioswap_lab::ram_device::RamDevice;
use folioswap_lab::swapout::{Backing, Cpu, Exit, LargeFolios, PageState, Setup, Verified};
use folioswap_report::Show;
use folioswap_slots::*;

/// Pages of each of two tasks, and the limit of both together.
const TASK_PAGES: u32 = 2048;
const LIMIT: u32 = 2048;
const DEVICE: u64 = 8192;

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

fn allocator<P: Policy>(pages: u64) -> Allocator<P> {
    let allocator = Allocator::new(1, pages.div_ceil(u64::from(CLUSTER_SLOTS)) as u32).unwrap();
    allocator.slots().swapon(DeviceSpec::new(pages)).unwrap();
    allocator
}

fn cpu<'a, P: Policy>(
    allocator: &'a Allocator<P>,
    large_folios: LargeFolios,
    order: Order,
    backing: Backing<'a>,
) -> Cpu<'a, P> {
    let setup = Setup {
        slots: allocator.slots(),
        logical: LogicalCpu(0),
        large_folios,
        order,
        tasks: 2,
        task_pages: TASK_PAGES,
        limit: LIMIT,
        backing,
    };
    Cpu::new(&setup).unwrap()
}

fn scenario(scenario: Scenario, order: u32) -> [Counts; 2] {
    let outcomes = run_scenarios().unwrap();
    let of = |variant| {
        let is = |outcome: &&ScenarioOutcome| {
            outcome.scenario == scenario && outcome.order == order && outcome.variant == variant
        };
        outcomes.iter().find(is).unwrap().counts
    };
    [of(Variant::Before), of(Variant::After)]
}

// ---- which folios leave whole (spec §3.6) ----

#[test]
fn on_an_empty_device_every_folio_leaves_whole_by_one_allocation_and_one_request() {
    for index in 0..=9 {
        let allocator = allocator::<Current>(DEVICE);
        let mut cpu = cpu(&allocator, LargeFolios::Whole, order(index), Backing::None);
        cpu.write_all();
        cpu.end_write_back();
        let stats = allocator.slots().stats();
        let pages = u64::from(2 * TASK_PAGES - cpu.resident());
        assert!(pages >= u64::from(2 * TASK_PAGES - LIMIT), "{index}");
        let mut expected = [0; ORDERS];
        expected[index as usize] = pages >> index;
        assert_eq!(stats.allocated, expected, "{index}");
        assert_eq!(stats.fallback, [0; ORDERS], "{index}");
        assert_eq!((cpu.splits().sum(), cpu.refused()), (0, 0), "{index}");
        assert_eq!(cpu.requests(), pages >> index, "{index}");
        assert_eq!(stats.inuse, pages, "{index}");
    }
}

#[test]
fn split_first_allocates_single_pages_only_and_before_the_series_2_mib_too() {
    for (large_folios, whole) in [(LargeFolios::SplitFirst, None), (LargeFolios::OnlyHugeWhole, Some(9))] {
        for index in 1..=9 {
            let allocator = allocator::<FreePerSlot>(DEVICE);
            let mut cpu = cpu(&allocator, large_folios, order(index), Backing::None);
            cpu.write_all();
            let stats = allocator.slots().stats();
            let orders: Vec<usize> = (0..ORDERS).filter(|index| stats.allocated[*index] > 0).collect();
            let expected = if whole == Some(index) { 9 } else { 0 };
            assert_eq!(orders, [expected], "{large_folios:?} {index}");
            assert_eq!(stats.fallback, [0; ORDERS], "splitting first is no fallback");
            assert_eq!(cpu.splits().by_rule > 0, expected == 0, "{large_folios:?} {index}");
            assert_eq!(cpu.splits().sum(), cpu.splits().by_rule);
            let requests = stats.allocated[expected];
            assert_eq!(cpu.requests(), requests, "a request for each page that leaves alone");
        }
    }
}

#[test]
fn a_partially_mapped_folio_is_split_first_and_the_page_given_back_takes_no_slot() {
    let [before, after] = scenario(Scenario::PartiallyMapped, 4);
    // 512 folios, 64 of which lack a page.
    assert_eq!((after.splits.partially_mapped, after.splits.sum()), (64, 64));
    assert_eq!((after.swpout, after.pages_alone, after.exit.pages), (448, 64 * 15, 8192 - 64));
    assert_eq!((before.swpout, before.splits.by_rule, before.splits.partially_mapped), (0, 448, 64));
    let [before, after] = scenario(Scenario::PartiallyMapped, 9);
    assert_eq!((after.swpout, after.pages_alone, after.splits.partially_mapped), (14, 2 * 511, 2));
    assert_eq!((before.swpout, before.pages_alone, before.splits.partially_mapped), (14, 2 * 511, 2));
}

#[test]
fn a_page_given_back_goes_with_the_split_of_its_folio_or_at_once() {
    for (index, waits) in [(4, 1), (0, 0)] {
        let allocator = allocator::<Current>(DEVICE);
        let mut cpu = cpu(&allocator, LargeFolios::Whole, order(index), Backing::None);
        cpu.write(0, 0..32);
        cpu.give_back(0, 5);
        assert_eq!(cpu.resident(), 31 + waits, "order {index}");
        cpu.page_out(0, 0..32);
        assert_eq!(cpu.resident(), 0);
        assert_eq!(cpu.page_state(0, 5), PageState::None);
        assert_eq!(allocator.slots().stats().inuse, 31);
        assert_eq!(cpu.splits().partially_mapped, u64::from(waits));
    }
}

// ---- no adjacent slots (spec §3.5, §3.6) ----

#[test]
fn fallbacks_are_counted_on_a_fragmented_device_and_every_page_leaves_alone() {
    let [before, after] = scenario(Scenario::NoRunLeft, 4);
    assert_eq!((after.swpout, after.swpout_fallback, after.splits.no_slots), (0, 512, 512));
    assert_eq!((after.pages_alone, after.requests, after.refused), (8192, 8192, 0));
    // Before, slots for the whole folio are not even looked for.
    assert_eq!((before.swpout, before.swpout_fallback, before.splits.by_rule), (0, 0, 512));
    assert_eq!(before.pages_alone, 8192);
    for counts in scenario(Scenario::NoRunLeft, 9) {
        assert_eq!((counts.swpout, counts.swpout_fallback, counts.splits.no_slots), (0, 16, 16));
        assert_eq!(counts.pages_alone, 8192);
    }
}

#[test]
fn single_pages_take_what_a_cluster_of_large_folios_has_left() {
    // The header's cluster is one of single pages; the other is fixed to 64 kB by its first folio.
    let allocator = allocator::<Current>(1024);
    let mut cpu = cpu(&allocator, LargeFolios::Whole, order(4), Backing::None);
    cpu.write(0, 0..320);
    cpu.page_out(0, 0..320);
    let slots = allocator.slots();
    assert_eq!(
        (slots.stats().allocated[4], slots.stats().fallback[4], slots.free_slots()),
        (20, 0, 1023 - 320)
    );
    let take = |index| slots.alloc_folio(LogicalCpu(1), order(index), FolioId(7000), DeviceMask::ALL);
    assert_eq!(take(5), Err(AllocError::SplitAndRetry), "192 slots in a row are free, but for 64 kB");
    for _ in 0..1023 - 320 {
        take(0).unwrap();
    }
    assert_eq!(take(0), Err(AllocError::NoSpace));
    slots.validate().unwrap();
}

#[test]
fn what_finds_no_slot_stays_in_memory_and_the_bytes_of_all_are_right() {
    let mut device = RamDevice::new(1024);
    device.populate();
    let allocator = allocator::<Current>(1024);
    let mut cpu = cpu(&allocator, LargeFolios::Whole, order(4), Backing::Paged(&device));
    cpu.write_all();
    cpu.end_write_back();
    assert!(cpu.refused() > 0);
    // The header's cluster has 511 slots for single pages, the other 32 runs of 16.
    let stats = allocator.slots().stats();
    assert_eq!((stats.allocated[4], stats.allocated[0], stats.inuse), (32, 511, 1023));
    assert!(stats.fallback[4] > 0 && stats.fallback[4] == cpu.splits().no_slots, "{stats:?}");
    assert_eq!(cpu.resident(), 2 * TASK_PAGES - 1023);
    let expected = Verified { present: u64::from(2 * TASK_PAGES) - 1023, swapped: 1023 };
    assert_eq!(cpu.verify(), Some(expected));
    assert_eq!(cpu.exit().pages, 1023);
    assert_eq!(allocator.slots().validate().unwrap().inuse, 0);
}

// ---- MADV_PAGEOUT (spec §3.7) ----

#[test]
fn advised_folios_leave_whole_and_only_those_that_lie_in_the_range_in_part_are_split() {
    let [before, after] = scenario(Scenario::AdvisedInPart, 4);
    assert_eq!((after.splits.partly_advised, after.splits.sum()), (2, 2));
    assert_eq!((after.swpout, after.pages_alone, after.exit.pages), (510, 30, 8190));
    assert_eq!((before.swpout, before.pages_alone, before.splits.by_rule), (0, 8190, 510));
    for counts in scenario(Scenario::AdvisedInPart, 9) {
        assert_eq!((counts.swpout, counts.pages_alone, counts.splits.partly_advised), (14, 1022, 2));
    }
}

#[test]
fn what_was_not_advised_stays() {
    let allocator = allocator::<Current>(DEVICE);
    let mut cpu = cpu(&allocator, LargeFolios::Whole, order(4), Backing::None);
    for task in [0, 1] {
        cpu.write(task, 0..64);
    }
    cpu.page_out(0, 8..48);
    let swapped = |cpu: &Cpu<'_, Current>, task| {
        (0..64)
            .filter(|page| matches!(cpu.page_state(task, *page), PageState::Swapped(_)))
            .collect::<Vec<u32>>()
    };
    assert_eq!(swapped(&cpu, 0), (8..48).collect::<Vec<_>>());
    assert!(swapped(&cpu, 1).is_empty());
    assert_eq!(cpu.resident(), 128 - 40);
}

// ---- frees (spec §3.2) ----

#[test]
fn a_cached_folio_is_looked_up_once_and_before_once_for_each_of_its_slots() {
    let [before, after] = scenario(Scenario::EndsUnderWriteBack, 9);
    assert_eq!((before.exit.lookups, after.exit.lookups), (8192, 16));
    let [before, after] = scenario(Scenario::EndsUnderWriteBack, 4);
    // Before, there is no large folio any more: each page is a folio of its own.
    assert_eq!((before.exit.lookups, after.exit.lookups), (8192, 512));
    let [before, after] = scenario(Scenario::EmptyDevice, 4);
    assert_eq!((before.exit.lookups, after.exit.lookups), (0, 0), "write-back is over: nothing is cached");
}

#[test]
fn entries_in_a_row_are_freed_by_one_call_whatever_they_belonged_to() {
    for (large_folios, index) in
        [(LargeFolios::Whole, 4), (LargeFolios::SplitFirst, 4), (LargeFolios::Whole, 0)]
    {
        let allocator = allocator::<Current>(DEVICE);
        let mut cpu = cpu(&allocator, large_folios, order(index), Backing::None);
        cpu.write(0, 0..1024);
        cpu.page_out(0, 0..1024);
        let exit = cpu.exit();
        assert_eq!((exit.pages, exit.lookups), (1024, 0));
        // Each 512 entries have a page table of their own, and the header's slot shifts single
        // pages against the clusters.
        assert!(exit.calls <= 4, "{large_folios:?} {index}: {exit:?}");
        assert_eq!(allocator.slots().validate().unwrap().inuse, 0);
    }
}

// ---- bytes ----

#[test]
fn the_bytes_are_those_that_were_written_whichever_way_they_left() {
    for index in [0, 4, 9] {
        for large_folios in [LargeFolios::SplitFirst, LargeFolios::OnlyHugeWhole, LargeFolios::Whole] {
            for memory_stays in [true, false] {
                let device = RamDevice::new(DEVICE);
                let allocator = allocator::<Current>(DEVICE);
                let backing = if memory_stays { Backing::Resident(&device) } else { Backing::Paged(&device) };
                let mut cpu = cpu(&allocator, large_folios, order(index), backing);
                cpu.write_all();
                cpu.end_write_back();
                let verified = cpu.verify().unwrap();
                assert_eq!(verified.present, u64::from(cpu.resident()));
                assert_eq!(verified.present + verified.swapped, u64::from(2 * TASK_PAGES));
                assert!(cpu.resident() <= LIMIT, "{index} {large_folios:?}: {}", cpu.resident());
                assert_eq!(cpu.exit().pages, verified.swapped);
                assert_eq!(allocator.slots().validate().unwrap().inuse, 0);
            }
        }
    }
}

#[test]
#[should_panic(expected = "other bytes than were written")]
fn a_wrong_byte_on_the_device_is_noticed() {
    let device = RamDevice::new(DEVICE);
    let allocator = allocator::<Current>(DEVICE);
    let mut cpu = cpu(&allocator, LargeFolios::Whole, order(4), Backing::Paged(&device));
    cpu.write(0, 0..64);
    cpu.page_out(0, 0..64);
    let PageState::Swapped(entry) = cpu.page_state(0, 21) else { panic!("it has left") };
    let mut page = [0u8; 4096];
    let bytes = std::ptr::NonNull::from(&mut page).cast::<u8>();
    // SAFETY: the array has the size of a page; nothing else is under way.
    unsafe {
        device.read(entry, 1, bytes);
        let last = bytes.add(4095);
        last.write(last.read() ^ 1);
        device.write(entry, 1, bytes);
    }
    cpu.verify();
}

// ---- the experiment ----

fn small() -> Options {
    Options { rounds: 2, threads: 2, task_mib: 4, margin: 0.05 }
}

#[test]
fn every_case_runs_and_no_slot_is_lost() {
    let outcomes = run(&small(), &CASES, Show::No).unwrap();
    assert_eq!(outcomes.cases.len(), CASES.len());
    for outcome in &outcomes.cases {
        let large = outcome.case.order > 0;
        for measured in &outcome.measured {
            let Counts { swpout, swpout_fallback, pages_alone, splits, requests, refused, exit, lost } =
                measured.counts;
            assert_eq!((swpout_fallback, refused, lost), (0, 0, 0), "{outcome:?}");
            assert_eq!((swpout << outcome.case.order) + pages_alone, exit.pages, "{outcome:?}");
            assert_eq!(requests, swpout + pages_alone, "{outcome:?}");
            let large_folios = measured.variant.large_folios();
            let whole = large_folios.tries_whole(order(outcome.case.order));
            assert_eq!((swpout > 0, pages_alone > 0), (whole, !whole), "{outcome:?}");
            assert_eq!(splits.sum() << outcome.case.order, if whole { 0 } else { pages_alone });
            assert!(measured.rate.min > 0.0 && measured.processor_ns.min > 0.0 && exit != Exit::default());
            assert!(large || measured.variant != Variant::Before || measured.to_baseline.median == 1.0);
        }
        // The variants of a case do the same work.
        let pages = |variant: usize| outcome.measured[variant].counts.exit.pages;
        assert!((1..Variant::ALL.len()).all(|variant| pages(variant) == pages(0)), "{outcome:?}");
    }
    for outcome in &outcomes.scenarios {
        assert_eq!((outcome.counts.lost, outcome.counts.refused), (0, 0), "{outcome:?}");
    }
    let report = report(&small(), &outcomes);
    let text = report.text();
    for part in ["+46.3 %", "-13.6 %", "+89.6 %", "scale 1/996", "Not comparable:", "swpout_fallback"] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    assert_eq!(report.chart.bars.len(), CASES.len() * Variant::ALL.len());
    assert_eq!(report.tables[3].rows.len(), SCENARIOS.len() * 2);
}

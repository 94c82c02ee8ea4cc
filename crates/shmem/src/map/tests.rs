//! The map against an array of pages, and its lookups beside a writer.

use super::*;
use folioswap_slots::{DeviceId, Order, SwapEntry};
use folioswap_test_support::random::Random;
use std::sync::atomic::{AtomicBool, Ordering};

fn map() -> Map {
    Map::new(Arc::default())
}

/// An item for a range of `order` whose value is aligned as a folio's is.
fn item(random: &mut Random, order: Order) -> Item {
    let value = (1 + random.below(1000)) << order.index();
    match random.below(8) {
        0 => Item::Poison,
        1..=4 => Item::Folio(value as u32),
        _ => Item::Swap(SwapEntry::new(DeviceId::new(3).unwrap(), value).unwrap()),
    }
}

/// Random stores, removals and splits of every order, against an array of pages.
#[test]
fn as_an_array_of_pages_has_it() {
    const PAGES: u64 = 4096;
    for seed in 1..=20u64 {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Near the start, and far away, where the tree is high.
        let base = if seed % 2 == 0 { 0 } else { (1 << 51) - PAGES };
        let meter: Arc<AtomicU64> = Arc::default();
        let map = Map::new(meter.clone());
        let mut pages: Vec<Option<Found>> = vec![None; PAGES as usize];
        for _ in 0..1500 {
            let order = Order::new(random.below(10) as u32).unwrap();
            let size = u64::from(order.slots());
            let start = random.below(PAGES / size) * size;
            let mut writer = map.lock();
            // An item that reaches beyond the range is split first, as all callers do.
            for edge in [start, start + size - 1] {
                if let Some(found) = pages[edge as usize].filter(|found| found.order > order) {
                    assert!(writer.split(base + edge, order));
                    let first = edge & !(u64::from(found.order.slots()) - 1);
                    for page in first..first + u64::from(found.order.slots()) {
                        pages[page as usize] = pages[page as usize].map(|found| Found { order, ..found });
                    }
                }
            }
            let new = (random.below(3) > 0).then(|| item(&mut random, order));
            writer.store(base + start, order, new);
            for page in 0..size {
                let found = new.map(|item| Found { item: item.step(page), order });
                pages[(start + page) as usize] = found;
            }
            for _ in 0..20 {
                let page = random.below(PAGES);
                assert_eq!(map.get(base + page), pages[page as usize], "page {page}");
                let expected = (page..PAGES).find(|&page| pages[page as usize].is_some());
                let next = map.next(base + page, Look::Present);
                assert_eq!(next.map(|(first, _)| first.max(base + page)), expected.map(|at| base + at));
                let is_swap = |page: &u64| {
                    pages[*page as usize].is_some_and(|found| matches!(found.item, Item::Swap(_)))
                };
                let next = map.next(base + page, Look::Swapped);
                let expected = (page..PAGES).find(is_swap).map(|at| base + at);
                assert_eq!(next.map(|(first, _)| first.max(base + page)), expected);
            }
        }
        let mut writer = map.lock();
        for page in 0..PAGES {
            writer.split(base + page, Order::ZERO);
            writer.store(base + page, Order::ZERO, None);
        }
        drop(writer);
        assert_eq!(map.next(0, Look::Present), None);
        assert_eq!(meter.load(Ordering::Relaxed), 0, "no node is left");
    }
}

#[test]
fn a_range_is_expected_as_it_is_whatever_the_orders() {
    let map = map();
    let entry = |offset| SwapEntry::new(DeviceId::new(0).unwrap(), offset).unwrap();
    let (four, two) = (Order::new(4).unwrap(), Order::new(2).unwrap());
    let mut writer = map.lock();
    writer.store(16, four, Some(Item::Swap(entry(32))));
    assert_eq!(writer.expect_swapped(16, four, entry(32)), Ok(()));
    assert_eq!(writer.expect_swapped(16, two, entry(32)), Err(Changed), "the entry goes beyond the end");
    assert_eq!(writer.expect_swapped(20, two, entry(36)), Err(Changed), "and begins before the start");
    assert!(writer.split(21, two));
    assert_eq!(writer.expect_swapped(16, four, entry(32)), Ok(()));
    assert_eq!(writer.expect_swapped(20, two, entry(36)), Ok(()));
    assert_eq!(writer.expect_swapped(20, two, entry(40)), Err(Changed));
    writer.store(28, two, Some(Item::Swap(entry(64))));
    assert_eq!(writer.expect_swapped(16, four, entry(32)), Err(Changed), "the last one is another");
    writer.store(28, two, None);
    assert_eq!(writer.expect_swapped(16, four, entry(32)), Err(Changed));
    assert_eq!(writer.expect_empty(28, two), Ok(()));
    assert_eq!(writer.expect_empty(16, four), Err(Changed));
}

/// Lookups beside a writer that stores, splits and takes out: each finds an item that was there at
/// some moment, and never a freed node.
#[test]
fn lookups_take_no_lock_and_find_what_was_there() {
    let map = map();
    let stop = AtomicBool::new(false);
    let nine = Order::MAX;
    let entry = |offset| SwapEntry::new(DeviceId::new(0).unwrap(), offset).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                let mut random = Random::new(thread + 7);
                let mut seen = 0u64;
                while !stop.load(Ordering::Relaxed) || seen < 1000 {
                    let page = random.below(1024);
                    match map.get(page).map(|found| found.item) {
                        None => {}
                        Some(Item::Folio(frame)) => assert_eq!(u64::from(frame), 4096 + page),
                        Some(Item::Swap(found)) => assert_eq!(found.offset(), 8192 + page),
                        Some(Item::Poison) => panic!("nobody stored that"),
                    }
                    seen += 1;
                }
            });
        }
        let mut random = Random::new(3);
        for _ in 0..3000 {
            let block = random.below(2) * 512;
            let mut writer = map.lock();
            match random.below(4) {
                0 => writer.store(block, nine, Some(Item::Folio(4096 + block as u32))),
                1 => writer.store(block, nine, Some(Item::Swap(entry(8192 + block)))),
                2 => _ = writer.split(block + random.below(512), Order::ZERO),
                _ => writer.store(block, nine, None),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

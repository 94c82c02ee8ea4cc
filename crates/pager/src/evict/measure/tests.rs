use super::*;
use crate::engine::Engine;
use crate::test_memory::{decide, engine, store_page};
use folioswap_group::counters::Gauge;
use std::os::fd::IntoRawFd;

/// An engine within 8 MiB, and its evictor, whose next slow reading is not due in this test.
fn measured() -> (&'static Engine, Evictor) {
    let engine = engine();
    decide(engine).set_limit_bytes(8 << 20);
    assert_eq!(decide(engine).assign(engine.segment(), std::process::id()), Some(0));
    let statm = std::fs::File::open("/proc/self/statm").expect("our own size");
    engine.descriptors.statm.store(statm.into_raw_fd(), Relaxed);
    let mut evictor = Evictor::new(engine);
    evictor.measure();
    assert!(evictor.survey.slow_due.take(u64::MAX / 2, u64::MAX / 4));
    (engine, evictor)
}

/// Stores so many pages that do not compress.
fn store(engine: &Engine, pages: core::ops::Range<usize>) {
    let mut bytes = [0; PAGE];
    for page in pages {
        let mut random = page as u64 + 1;
        bytes.fill_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        });
        store_page(engine, (1 << 40) + page * PAGE, &bytes);
    }
}

/// A program fills the store within 20 ms, and the handler would keep the copies of what comes back
/// until the next slow reading.
#[test]
fn a_store_that_fills_at_once_is_full_at_the_next_measurement() {
    let (engine, mut evictor) = measured();
    // Of 8 MiB, an eighth is 256 pages.
    store(engine, 0..200);
    evictor.measure();
    assert_eq!(engine.counts.swap_full.load(Relaxed), 0);
    assert_eq!(engine.figures().gauge(Gauge::MemUsedTotal), engine.space.store_bytes());
    store(engine, 200..300);
    evictor.measure();
    assert_ne!(engine.counts.swap_full.load(Relaxed), 0);
}

#[test]
fn a_store_that_hardly_changes_is_not_published_out_of_turn() {
    let (engine, mut evictor) = measured();
    let published = engine.figures().gauge(Gauge::MemUsedTotal);
    store(engine, 0..4);
    evictor.measure();
    assert_eq!(engine.figures().gauge(Gauge::MemUsedTotal), published);
}

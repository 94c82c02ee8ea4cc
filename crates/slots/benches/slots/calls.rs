//! Single calls, each on a cluster that stays in use.

use super::common::*;
use divan::{Bencher, black_box};
use folioswap_slots::*;

fn used() -> (Bench, SwapEntry) {
    let bench = engine_with(Config { cpus: 96, clusters_max: 4096, frame_chunks_max: 64 }, 256);
    bench.swapon(DeviceSpec::new(100 * 512)).unwrap();
    let entry = take(&bench, CPU0, 0, 3);
    (bench, entry)
}

/// Lockless read of a slot word. Bound: at most 15 ns.
#[divan::bench(sample_size = 10_000)]
fn lookup(bencher: Bencher) {
    let (bench, entry) = used();
    bencher.bench_local(|| black_box(bench.word(black_box(entry))));
}

/// Adds one count and takes it back.
#[divan::bench(sample_size = 10_000)]
fn dup_put(bencher: Bencher) {
    let (bench, entry) = used();
    bencher.bench_local(|| {
        bench.dup(entry, 1).unwrap();
        bench.put(entry, 1, |_, _| {}).unwrap()
    });
}

/// A 64 KiB folio leaves the swap cache and comes back.
#[divan::bench(sample_size = 10_000)]
fn cache_remove_insert_64k(bencher: Bencher) {
    let (bench, _) = used();
    let entry = take(&bench, CPU0, 4, 3);
    bencher.bench_local(|| {
        bench.cache_remove(entry, 16, FolioId(3), Shadow::EMPTY, |_, _| {}).unwrap();
        bench.cache_insert(entry, order(4), FolioId(3)).unwrap()
    });
}

//! `cargo bench -p folioswap-slots`. Every pair is one allocation and one free, so the figure is the cost of both.

#[path = "../tests/common/mod.rs"]
mod common;
use common::*;
use divan::{Bencher, black_box};
use folioswap_slots::*;

fn main() {
    divan::main();
}

fn large() -> Bench {
    let bench = engine_with(Config { cpus: 96, clusters_max: 4096, frame_chunks_max: 64 }, 256);
    bench.swapon(DeviceSpec::new(100 * 512)).unwrap();
    bench
}

fn pair(slots: &Slots<PAYLOAD>, cpu: LogicalCpu, order: Order) {
    let entry = slots.alloc_folio(cpu, order, FolioId(1), DeviceMask::ALL).unwrap();
    slots.cache_remove(entry, order.slots(), FolioId(1), Shadow::EMPTY, |_, _| {}).unwrap();
    black_box(slots.put(entry, order.slots(), |_, _| {}).unwrap());
}

/// 256 allocations, one call in which they all leave the cache, 256 frees: divide by 256 for an allocation and free pair.
#[divan::bench(args = [0])]
fn alloc_then_put_256(bencher: Bencher, size: u32) {
    let bench = large();
    let slots = bench.slots;
    let order = order(size);
    bencher.counter(divan::counter::ItemsCount::new(256u32)).bench_local(|| {
        let mut entries = [None; 256];
        for entry in &mut entries {
            *entry = Some(slots.alloc_folio(CPU0, order, FolioId(1), DeviceMask::ALL).unwrap());
        }
        let (Some(first), Some(last)) = (entries[0], entries[255]) else { return };
        if last.offset() == first.offset() + 255 {
            slots.cache_remove(first, 256, FolioId(1), Shadow::EMPTY, |_, _| {}).unwrap();
        } else {
            for entry in entries.into_iter().flatten() {
                slots.cache_remove(entry, 1, FolioId(1), Shadow::EMPTY, |_, _| {}).unwrap();
            }
        }
        for entry in entries.into_iter().flatten() {
            black_box(slots.put(entry, order.slots(), |_, _| {}).unwrap());
        }
    });
}

/// alloc, leave the cache, put: three calls.
#[divan::bench(args = [0, 4, 9])]
fn alloc_remove_put(bencher: Bencher, size: u32) {
    let bench = large();
    let slots = bench.slots;
    bencher.bench_local(|| pair(&slots, CPU0, order(size)));
}

/// The same by two threads on CPUs of their own.
#[divan::bench(threads = [2], args = [0, 4], sample_size = 2000)]
fn alloc_remove_put_two_threads(bencher: Bencher, size: u32) {
    let bench = large();
    let slots = bench.slots;
    let next = std::sync::atomic::AtomicU32::new(0);
    std::thread_local!(static CPU: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) });
    bencher.bench(|| {
        let cpu = CPU.with(|cpu| {
            if cpu.get() == u32::MAX {
                cpu.set(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            }
            cpu.get()
        });
        pair(&slots, LogicalCpu(cpu), order(size));
    });
}

/// One thread that plays 96 CPUs in turn.
#[divan::bench]
fn alloc_remove_put_96_cpus(bencher: Bencher) {
    let bench = large();
    let slots = bench.slots;
    let mut cpu = 0;
    bencher.bench_local(|| {
        cpu = (cpu + 1) % 96;
        pair(&slots, LogicalCpu(cpu), Order::ZERO);
    });
}

/// Lockless read of a slot word.
#[divan::bench]
fn lookup(bencher: Bencher) {
    let bench = large();
    let slots = bench.slots;
    let entry = take(&slots, CPU0, 0, 3);
    bencher.bench_local(|| black_box(slots.word(black_box(entry))));
}

/// One count up and down again.
#[divan::bench]
fn dup_put(bencher: Bencher) {
    let bench = large();
    let slots = bench.slots;
    let entry = take(&slots, CPU0, 0, 3);
    bencher.bench_local(|| {
        slots.dup(entry, 1).unwrap();
        slots.put(entry, 1, |_, _| {}).unwrap()
    });
}

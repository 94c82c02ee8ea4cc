//! `cargo bench -p folioswap-slots`; a filter after `--`, e.g. `-- threads`. Figures are per sample
//! of [`PAIRS`] pairs of one allocation and one free; the rate in items per second beside them is
//! that of pairs.
//!
//! Each thread holds 4096 slots (order 0), or as many in folios of 64 KiB, throughout, so that
//! clusters change, fill and empty as it goes, in the order of its [`Pattern`].

#[path = "../../tests/common/mod.rs"]
mod common;

mod bitmap;
mod calls;
mod workload;

use bitmap::Bitmap;
use divan::Bencher;
use divan::counter::ItemsCount;
use folioswap_slots::*;
use rustix::thread::CpuSet;
use std::sync::Barrier;
use workload::{Allocator, Engine, Pattern, Thread, held};

/// Pairs per sample. Ten samples make more than 10^7.
const PAIRS: usize = 1_048_576;

fn main() {
    divan::main();
}

const FOUR: Order = Order::new(4).unwrap();
const ALL: [Pattern; 3] = [Pattern::Tasks, Pattern::Oldest, Pattern::Random];

/// One thread on one CPU.
fn one_cpu(bencher: Bencher, allocator: &impl Allocator, order: Order, pattern: Pattern) {
    let mut thread = Thread::new(allocator, pattern, order, held(order), vec![0]);
    bencher.counter(ItemsCount::new(PAIRS)).bench_local(move || thread.run(allocator, PAIRS));
}

/// Two threads, each on `cpus` / 2 CPUs in turn, run half of the pairs each.
fn two_threads(bencher: Bencher, allocator: &impl Allocator, order: Order, cpus: u32, pattern: Pattern) {
    let cpus_of = |thread| (0..cpus).filter(|cpu| cpu % 2 == thread).collect();
    let mut threads: Vec<_> =
        (0..2).map(|thread| Thread::new(allocator, pattern, order, held(order), cpus_of(thread))).collect();
    let both = [allocator, allocator];
    bencher.counter(ItemsCount::new(PAIRS)).bench_local(|| in_parallel(&mut threads, &both));
}

/// Each thread runs half of the pairs, on its allocator and on a processor of its own, as far as
/// there are enough.
fn in_parallel(threads: &mut [Thread], allocators: &[&impl Allocator]) {
    let start = Barrier::new(threads.len());
    std::thread::scope(|scope| {
        for (number, (thread, allocator)) in threads.iter_mut().zip(allocators).enumerate() {
            let start = &start;
            scope.spawn(move || {
                stay_on_processor(number);
                start.wait();
                thread.run(*allocator, PAIRS / 2);
            });
        }
    });
}

/// Binds the thread to a processor. The scheduler would otherwise start both on one processor now
/// and then, and move them during the first milliseconds.
fn stay_on_processor(number: usize) {
    let allowed = rustix::thread::sched_getaffinity(None).expect("affinity of this thread");
    let processors: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut own = CpuSet::new();
    own.set(processors[number % processors.len()]);
    rustix::thread::sched_setaffinity(None, &own).expect("one of the allowed processors");
}

/// Order 0 on one CPU. Bound: at most 60 ns per pair.
#[divan::bench_group(sample_count = 10, sample_size = 1)]
mod order_0 {
    use super::*;

    #[divan::bench(args = ALL)]
    fn today(bencher: Bencher, pattern: Pattern) {
        one_cpu(bencher, &Engine::<Current>::new(2), Order::ZERO, pattern);
    }

    #[divan::bench(args = ALL)]
    fn slot_cache(bencher: Bencher, pattern: Pattern) {
        one_cpu(bencher, &Engine::<SlotCachePerCpu>::new(2), Order::ZERO, pattern);
    }

    #[divan::bench(args = ALL)]
    fn bitmap(bencher: Bencher, pattern: Pattern) {
        one_cpu(bencher, &Bitmap::new(), Order::ZERO, pattern);
    }
}

/// 64 KiB folios on one CPU. Bound: at most 80 ns per folio.
#[divan::bench_group(sample_count = 10, sample_size = 1)]
mod order_4 {
    use super::*;

    #[divan::bench(args = ALL)]
    fn today(bencher: Bencher, pattern: Pattern) {
        one_cpu(bencher, &Engine::<Current>::new(2), FOUR, pattern);
    }

    #[divan::bench(args = ALL)]
    fn bitmap(bencher: Bencher, pattern: Pattern) {
        one_cpu(bencher, &Bitmap::new(), FOUR, pattern);
    }
}

/// Two threads on two CPUs. Bound: order 0 at least 1.9x the rate of one, as far as [`two_engines`]
/// reach that.
#[divan::bench_group(sample_count = 10, sample_size = 1)]
mod two_threads_2_cpus {
    use super::*;

    #[divan::bench(args = ALL)]
    fn today(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Engine::<Current>::new(2), Order::ZERO, 2, pattern);
    }

    #[divan::bench(args = ALL)]
    fn nonfull_first(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Engine::<NonfullUnlessDiscard>::new(2), Order::ZERO, 2, pattern);
    }

    #[divan::bench(args = ALL)]
    fn free_first(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Engine::<FreeFirst>::new(2), Order::ZERO, 2, pattern);
    }

    #[divan::bench(args = ALL)]
    fn slot_cache(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Engine::<SlotCachePerCpu>::new(2), Order::ZERO, 2, pattern);
    }

    #[divan::bench(args = ALL)]
    fn bitmap(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Bitmap::new(), Order::ZERO, 2, pattern);
    }

    #[divan::bench(args = ALL)]
    fn order_4(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Engine::<Current>::new(2), FOUR, 2, pattern);
    }
}

/// Two threads with nothing in common, an engine each: the limit of two processors of this machine,
/// and the measure for the group above.
#[divan::bench_group(sample_count = 10, sample_size = 1)]
mod two_engines {
    use super::*;

    fn run(bencher: Bencher, order: Order, pattern: Pattern) {
        let engines: Vec<_> = (0..2).map(|_| Engine::<Current>::new(2)).collect();
        let thread = |cpu| Thread::new(&engines[cpu as usize], pattern, order, held(order), vec![cpu]);
        let mut threads: Vec<_> = [0, 1].map(thread).into();
        bencher
            .counter(ItemsCount::new(PAIRS))
            .bench_local(|| in_parallel(&mut threads, &[&engines[0], &engines[1]]));
    }

    #[divan::bench(args = ALL)]
    fn order_0(bencher: Bencher, pattern: Pattern) {
        run(bencher, Order::ZERO, pattern);
    }

    #[divan::bench(args = ALL)]
    fn order_4(bencher: Bencher, pattern: Pattern) {
        run(bencher, FOUR, pattern);
    }
}

/// Two threads that play 96 CPUs. Bound: within 20 % of two.
#[divan::bench_group(sample_count = 10, sample_size = 1)]
mod two_threads_96_cpus {
    use super::*;

    #[divan::bench(args = ALL)]
    fn today(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Engine::<Current>::new(96), Order::ZERO, 96, pattern);
    }

    #[divan::bench(args = ALL)]
    fn slot_cache(bencher: Bencher, pattern: Pattern) {
        two_threads(bencher, &Engine::<SlotCachePerCpu>::new(96), Order::ZERO, 96, pattern);
    }
}

//! The file device by run length: `cargo bench -p folioswap-devices --bench file`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::Cell;

use common::data::PageKind;
use common::device::{AlignedRun, FileUnderTest};
use divan::Bencher;
use divan::counter::BytesCount;
use folioswap_devices::{FileSlot, PAGE_SIZE};

fn main() {
    divan::main();
}

/// The slots that the benchmark cycles through: 64 MiB.
const SLOTS: u64 = 16384;
const RUNS: [usize; 3] = [1, 16, 512];

fn filled(pages: usize) -> AlignedRun {
    let mut run = AlignedRun::new(pages);
    for (seed, page) in run.bytes().chunks_exact_mut(PAGE_SIZE).enumerate() {
        page.copy_from_slice(&PageKind::Incompressible.page(seed as u64));
    }
    run
}

fn next(at: &Cell<u64>, pages: usize) -> FileSlot {
    let slot = at.get();
    at.set((slot + pages as u64) % SLOTS);
    FileSlot::new(slot).unwrap()
}

/// Slots that have been written before.
#[divan::bench(args = RUNS, max_time = 2)]
fn write(bencher: Bencher, pages: usize) {
    let (file, mut run, at) = (written(), filled(pages), Cell::new(0));
    bencher.counter(BytesCount::new(pages * PAGE_SIZE)).bench_local(|| {
        file.device().write(next(&at, pages), run.bytes()).unwrap();
    });
}

#[divan::bench(args = RUNS, max_time = 2)]
fn read(bencher: Bencher, pages: usize) {
    let (file, mut run, at) = (written(), filled(pages), Cell::new(0));
    bencher.counter(BytesCount::new(pages * PAGE_SIZE)).bench_local(|| {
        file.device().read(next(&at, pages), run.bytes()).unwrap();
    });
}

#[divan::bench(args = RUNS, max_time = 2, sample_count = 20, sample_size = 1)]
fn punch(bencher: Bencher, pages: usize) {
    let (file, at) = (written(), Cell::new(0));
    bencher.counter(BytesCount::new(pages * PAGE_SIZE)).bench_local(|| {
        file.device().discard(next(&at, pages), pages as u64).unwrap();
    });
}

fn written() -> FileUnderTest {
    let (file, mut run) = (FileUnderTest::new(), filled(512));
    for slot in (0..SLOTS).step_by(512) {
        file.device().write(FileSlot::new(slot).unwrap(), run.bytes()).unwrap();
    }
    file
}

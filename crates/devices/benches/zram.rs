//! The compressed store per kind of data: `cargo bench -p folioswap-devices --bench zram`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::{Cell, RefCell};

use common::data::{PageKind, Rng};
use common::memory::TestMemory;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use folioswap_devices::{
    Checksum, IncompressiblePolicy, Owner, PAGE_SIZE, Page, Scratch, StoreOptions, Stored, Zram, lz4, page,
    zstd,
};

fn main() {
    divan::main();
}

const PAGES: usize = 2000;

fn pages(kind: PageKind) -> Vec<Page> {
    (0..PAGES as u64).map(|seed| kind.page(seed)).collect()
}

fn zram() -> Box<Zram<TestMemory>> {
    let options = StoreOptions { incompressible: IncompressiblePolicy::Keep, ..StoreOptions::DEFAULT };
    Box::new(Zram::new(TestMemory::new(), options))
}

fn owner() -> Owner {
    Owner::new(1).unwrap()
}

/// Hands out items in cycle, so that neither the branch predictor nor the cache learns one of them.
struct Cycle<'a, T>(&'a [T], Cell<usize>);

impl<'a, T> Cycle<'a, T> {
    fn new(of: &'a [T]) -> Self {
        Self(of, Cell::new(0))
    }

    fn next(&self) -> &'a T {
        let at = self.1.get();
        self.1.set(if at + 1 == self.0.len() { 0 } else { at + 1 });
        &self.0[at]
    }
}

/// Stores and frees a page: the steady state of a full store.
#[divan::bench(args = PageKind::ALL)]
fn store_and_free(bencher: Bencher, kind: PageKind) {
    let (pages, zram) = (pages(kind), zram());
    let (cycle, scratch) = (Cycle::new(&pages), RefCell::new(Box::new(Scratch::new())));
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        let stored = zram.store(&mut scratch.borrow_mut(), cycle.next(), owner()).unwrap();
        if let Stored::Object { handle, len, .. } = stored {
            // SAFETY: the object was just stored; single-threaded.
            unsafe { zram.free(handle, len) }.unwrap();
        }
    });
}

#[divan::bench(args = [PageKind::TwoToOne, PageKind::ThreeToOne, PageKind::Incompressible, PageKind::Numbers, PageKind::Mixed])]
fn load(bencher: Bencher, kind: PageKind) {
    let zram = zram();
    let mut scratch = Box::new(Scratch::new());
    let stored: Vec<_> = pages(kind)
        .iter()
        .filter_map(|page| match zram.store(&mut scratch, page, owner()).unwrap() {
            Stored::Object { handle, len, codec, checksum } => Some((handle, len, codec, checksum)),
            _ => None,
        })
        .collect();
    let (cycle, mut out, mut decoder) = (Cycle::new(&stored), [0; PAGE_SIZE], Box::new(zstd::Decoder::new()));
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        let &(handle, len, codec, checksum) = cycle.next();
        // SAFETY: the object was stored above; single-threaded.
        unsafe { zram.load(handle, len, codec, checksum, &mut decoder, &mut out) }.unwrap();
        black_box(&out);
    });
}

/// Frees 2:1 objects in random order, from a store of 8000.
#[divan::bench(sample_count = 20)]
fn free(bencher: Bencher) {
    let zram = zram();
    let pages = pages(PageKind::TwoToOne);
    let mut scratch = Box::new(Scratch::new());
    let mut rng = Rng::new(5);
    bencher
        .with_inputs(|| {
            let mut objects: Vec<_> = pages
                .iter()
                .cycle()
                .take(4 * PAGES)
                .map(|page| match zram.store(&mut scratch, page, owner()).unwrap() {
                    Stored::Object { handle, len, .. } => (handle, len),
                    other => panic!("{other:?}"),
                })
                .collect();
            for at in (1..objects.len()).rev() {
                objects.swap(at, rng.below(at as u64 + 1) as usize);
            }
            objects
        })
        .counter(divan::counter::ItemsCount::new(4 * PAGES))
        .bench_local_refs(|objects| {
            for (handle, len) in objects.drain(..) {
                // SAFETY: the object was stored above and is freed once; single-threaded.
                unsafe { zram.free(handle, len) }.unwrap();
            }
        });
}

#[divan::bench(args = [PageKind::TwoToOne, PageKind::ThreeToOne, PageKind::Incompressible])]
fn lz4_compress(bencher: Bencher, kind: PageKind) {
    let pages = pages(kind);
    let (cycle, mut table, mut output) =
        (Cycle::new(&pages), Box::new(lz4::Table::new()), [0; lz4::OUTPUT_MAX]);
    bencher
        .counter(BytesCount::new(PAGE_SIZE))
        .bench_local(|| lz4::compress(cycle.next(), &mut output, &mut table, 3904));
}

#[divan::bench(args = [PageKind::TwoToOne, PageKind::ThreeToOne])]
fn lz4_decompress(bencher: Bencher, kind: PageKind) {
    let (mut table, mut output) = (Box::new(lz4::Table::new()), [0; lz4::OUTPUT_MAX]);
    let blocks: Vec<Vec<u8>> = pages(kind)
        .iter()
        .map(|page| {
            let len = lz4::compress(page, &mut output, &mut table, 4095).unwrap();
            output[..len].to_vec()
        })
        .collect();
    let (cycle, mut out) = (Cycle::new(&blocks), [0; PAGE_SIZE]);
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        lz4::decompress(cycle.next(), &mut out).unwrap();
        black_box(&out);
    });
}

#[divan::bench(args = [PageKind::TwoToOne, PageKind::ThreeToOne, PageKind::Incompressible, PageKind::Text])]
fn zstd_compress(bencher: Bencher, kind: PageKind) {
    let pages = pages(kind);
    let (cycle, mut encoder) = (Cycle::new(&pages), Box::new(zstd::Encoder::new()));
    bencher
        .counter(BytesCount::new(PAGE_SIZE))
        .bench_local(|| encoder.compress(cycle.next(), 3904).map(<[u8]>::len));
}

#[divan::bench(args = [PageKind::TwoToOne, PageKind::ThreeToOne, PageKind::Text])]
fn zstd_decompress(bencher: Bencher, kind: PageKind) {
    let mut encoder = Box::new(zstd::Encoder::new());
    let frames: Vec<Vec<u8>> =
        pages(kind).iter().map(|page| encoder.compress(page, PAGE_SIZE).unwrap().to_vec()).collect();
    let (cycle, mut out, mut decoder) = (Cycle::new(&frames), [0; PAGE_SIZE], Box::new(zstd::Decoder::new()));
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        decoder.decompress(cycle.next(), &mut out).unwrap();
        black_box(&out);
    });
}

#[divan::bench(args = [1024, 2048, 4096])]
fn checksum(bencher: Bencher, bytes: usize) {
    let page = PageKind::Incompressible.page(1);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| Checksum::of(black_box(&page[..bytes])));
}

#[divan::bench(args = [PageKind::Zero, PageKind::SameFilled, PageKind::TwoToOne])]
fn same_filled(bencher: Bencher, kind: PageKind) {
    let pages = pages(kind);
    let cycle = Cycle::new(&pages);
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| page::same_filled(cycle.next()));
}

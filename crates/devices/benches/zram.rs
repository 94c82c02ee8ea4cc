//! The compressed store per kind of data: `cargo bench -p folioswap-devices --bench zram`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::{Cell, RefCell};

use common::data::{Kind, Rng};
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

fn pages(kind: Kind) -> Vec<Page> {
    (0..PAGES as u64).map(|seed| kind.page(seed)).collect()
}

fn zram() -> Box<Zram<TestMemory>> {
    let options = StoreOptions { incompressible: IncompressiblePolicy::Keep, ..StoreOptions::DEFAULT };
    Box::new(Zram::new(TestMemory::new(), options))
}

fn owner() -> Owner {
    Owner::new(1).unwrap()
}

/// Hands out items in turn, so that neither the branch predictor nor the cache learns one of them.
struct Turn<'a, T>(&'a [T], Cell<usize>);

impl<'a, T> Turn<'a, T> {
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
#[divan::bench(args = Kind::ALL)]
fn store_and_free(bencher: Bencher, kind: Kind) {
    let (pages, zram) = (pages(kind), zram());
    let (turn, scratch) = (Turn::new(&pages), RefCell::new(Box::new(Scratch::new())));
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        let stored = zram.store(&mut scratch.borrow_mut(), turn.next(), owner()).unwrap();
        if let Stored::Object { handle, len, .. } = stored {
            // SAFETY: the object was just stored; single-threaded.
            unsafe { zram.free(handle, len) }.unwrap();
        }
    });
}

#[divan::bench(args = [Kind::TwoToOne, Kind::ThreeToOne, Kind::Incompressible, Kind::Numbers, Kind::Mixed])]
fn load(bencher: Bencher, kind: Kind) {
    let zram = zram();
    let mut scratch = Box::new(Scratch::new());
    let stored: Vec<_> = pages(kind)
        .iter()
        .filter_map(|page| match zram.store(&mut scratch, page, owner()).unwrap() {
            Stored::Object { handle, len, codec, checksum } => Some((handle, len, codec, checksum)),
            _ => None,
        })
        .collect();
    let (turn, mut out, mut decoder) = (Turn::new(&stored), [0; PAGE_SIZE], Box::new(zstd::Decoder::new()));
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        let &(handle, len, codec, checksum) = turn.next();
        // SAFETY: the object was stored above; single-threaded.
        unsafe { zram.load(handle, len, codec, checksum, &mut decoder, &mut out) }.unwrap();
        black_box(&out);
    });
}

/// Frees 2:1 objects in random order, from a store of 8000.
#[divan::bench(sample_count = 20)]
fn free(bencher: Bencher) {
    let zram = zram();
    let pages = pages(Kind::TwoToOne);
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

#[divan::bench(args = [Kind::TwoToOne, Kind::ThreeToOne, Kind::Incompressible])]
fn lz4_compress(bencher: Bencher, kind: Kind) {
    let pages = pages(kind);
    let (turn, mut table, mut output) =
        (Turn::new(&pages), Box::new(lz4::Table::new()), [0; lz4::OUTPUT_MAX]);
    bencher
        .counter(BytesCount::new(PAGE_SIZE))
        .bench_local(|| lz4::compress(turn.next(), &mut output, &mut table, 3904));
}

#[divan::bench(args = [Kind::TwoToOne, Kind::ThreeToOne])]
fn lz4_decompress(bencher: Bencher, kind: Kind) {
    let (mut table, mut output) = (Box::new(lz4::Table::new()), [0; lz4::OUTPUT_MAX]);
    let blocks: Vec<Vec<u8>> = pages(kind)
        .iter()
        .map(|page| {
            let len = lz4::compress(page, &mut output, &mut table, 4095).unwrap();
            output[..len].to_vec()
        })
        .collect();
    let (turn, mut out) = (Turn::new(&blocks), [0; PAGE_SIZE]);
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        lz4::decompress(turn.next(), &mut out).unwrap();
        black_box(&out);
    });
}

#[divan::bench(args = [Kind::TwoToOne, Kind::ThreeToOne, Kind::Incompressible, Kind::Text])]
fn zstd_compress(bencher: Bencher, kind: Kind) {
    let pages = pages(kind);
    let (turn, mut encoder) = (Turn::new(&pages), Box::new(zstd::Encoder::new()));
    bencher
        .counter(BytesCount::new(PAGE_SIZE))
        .bench_local(|| encoder.compress(turn.next(), 3904).map(<[u8]>::len));
}

#[divan::bench(args = [Kind::TwoToOne, Kind::ThreeToOne, Kind::Text])]
fn zstd_decompress(bencher: Bencher, kind: Kind) {
    let mut encoder = Box::new(zstd::Encoder::new());
    let frames: Vec<Vec<u8>> =
        pages(kind).iter().map(|page| encoder.compress(page, PAGE_SIZE).unwrap().to_vec()).collect();
    let (turn, mut out, mut decoder) = (Turn::new(&frames), [0; PAGE_SIZE], Box::new(zstd::Decoder::new()));
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        decoder.decompress(turn.next(), &mut out).unwrap();
        black_box(&out);
    });
}

#[divan::bench(args = [1024, 2048, 4096])]
fn checksum(bencher: Bencher, bytes: usize) {
    let page = Kind::Incompressible.page(1);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| Checksum::of(black_box(&page[..bytes])));
}

#[divan::bench(args = [Kind::Zero, Kind::SameFilled, Kind::TwoToOne])]
fn same_filled(bencher: Bencher, kind: Kind) {
    let pages = pages(kind);
    let turn = Turn::new(&pages);
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| page::same_filled(turn.next()));
}

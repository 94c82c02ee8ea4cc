//! LZ4 of single pages, this crate's beside `lz4_flex` and the C library: `cargo bench -p
//! folioswap-devices --bench lz4 [-- FILE...]`. Prints ns per page, the best of five rounds, and
//! the ratio, for synthetic pages, shared libraries and programs, and the files given.

#[path = "../tests/common/mod.rs"]
mod common;

use common::data::PageKind;
use folioswap_devices::{PAGE_SIZE, Page, lz4 as ours};
use lz4::block::{CompressionMode, compress_to_buffer, decompress_to_buffer};
use std::time::Instant;
use std::{env, fs};

const PAGES: usize = 8000;
const ROUNDS: usize = 5;

/// Nanoseconds that `step` takes for one of `items`, in the best of the rounds.
fn best<T>(items: &[T], mut step: impl FnMut(&T)) -> f64 {
    let mut round = || {
        let begin = Instant::now();
        items.iter().for_each(&mut step);
        begin.elapsed().as_nanos() as f64 / items.len() as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min)
}

/// The best time of an encoder that returns a length, and the ratio that it reaches.
fn encode(pages: &[Page], mut encode: impl FnMut(&Page) -> usize) -> (f64, f64) {
    let len: usize = pages.iter().map(|page| encode(page).min(PAGE_SIZE)).sum();
    (best(pages, |page| _ = encode(page)), (pages.len() * PAGE_SIZE) as f64 / len as f64)
}

fn of_file(path: &str) -> Vec<Page> {
    let bytes = fs::read(path).unwrap_or_default();
    bytes
        .as_chunks()
        .0
        .iter()
        .filter(|page| page.iter().any(|&byte| byte != 0))
        .take(PAGES)
        .copied()
        .collect()
}

/// Every fifth page of every seventh file.
fn of_programs() -> Vec<Page> {
    let below = |path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = ["/usr/lib/x86_64-linux-gnu", "/usr/bin"].into_iter().flat_map(below).collect();
    files.sort();
    let read = |path| fs::read(path).unwrap_or_default();
    let pages = |bytes: Vec<u8>| bytes.as_chunks().0.iter().step_by(5).copied().collect::<Vec<Page>>();
    files.into_iter().step_by(7).map(read).flat_map(pages).take(PAGES).collect()
}

fn main() {
    let made_up = |kind: PageKind| (0..2000).map(|seed| kind.page(seed)).collect();
    let mut sets: Vec<(String, Vec<Page>)> =
        PageKind::ALL.into_iter().map(|kind| (format!("{kind:?}"), made_up(kind))).collect();
    sets.push(("files".into(), of_programs()));
    sets.extend(env::args().skip(1).filter(|name| !name.starts_with('-')).map(|name| {
        let pages = of_file(&name);
        (name, pages)
    }));
    println!(
        "| pages | ours in | ratio | Rust in | ratio | C in | ratio | C 2 in | ratio | ours out | Rust out | C out |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, pages) in sets.iter().filter(|(_, pages)| !pages.is_empty()) {
        let mut table = Box::new(ours::Table::new());
        let (mut block, mut out) = ([0; ours::OUTPUT_MAX], [0; PAGE_SIZE]);
        let by_c =
            |mode| move |page: &Page| compress_to_buffer(page, Some(mode), false, &mut [0; 8192]).unwrap();
        let mut theirs = lz4_flex::block::CompressTable::small();
        let encoded = [
            encode(pages, |page| ours::compress(page, &mut block, &mut table, ours::OUTPUT_MAX).unwrap()),
            encode(pages, |page| {
                lz4_flex::block::compress_into_with_table(page, &mut [0; 8192], &mut theirs).unwrap()
            }),
            encode(pages, by_c(CompressionMode::DEFAULT)),
            encode(pages, by_c(CompressionMode::FAST(2))),
        ];
        let blocks: Vec<Vec<u8>> = pages.iter().map(|page| lz4_flex::block::compress(page)).collect();
        let decoded = [
            best(&blocks, |block| ours::decompress(block, &mut out).unwrap()),
            best(&blocks, |block| _ = lz4_flex::block::decompress_into(block, &mut [0; PAGE_SIZE]).unwrap()),
            best(&blocks, |block| {
                _ = decompress_to_buffer(block, Some(PAGE_SIZE as i32), &mut [0; PAGE_SIZE]).unwrap();
            }),
        ];
        let encoded = encoded.map(|(ns, ratio)| format!("{ns:.0} | {ratio:.2}")).join(" | ");
        let decoded = decoded.map(|ns| format!("{ns:.0}")).join(" | ");
        println!("| {name} | {encoded} | {decoded} |");
    }
}

//! Random operations on regions whose faults come as SIGBUS. The oracle is the number with which
//! each page was last written.

mod common;

use common::Numbers;
use folioswap::{Device, FaultMode, Swap};
use std::ops::Range;

const PAGE: usize = folioswap_devices::PAGE_SIZE;

struct Random(Numbers);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0.next() as usize % limit
    }
    /// Returns a range of a region of `pages` pages: a single page, or a range of a folio's size,
    /// aligned to that size or not.
    fn range(&mut self, pages: usize) -> Range<usize> {
        let count = 1 << self.below(10);
        let first = self.below(pages);
        let first = if self.below(2) == 0 { first & !(count - 1) } else { first };
        first..(first + count).min(pages)
    }
}

/// Returns the words of a page that was written with this number. 0: never written, or discarded
/// since.
fn words(page: usize, number: u32) -> impl Iterator<Item = u64> {
    let first = (page as u64) << 32 | u64::from(number);
    (0..512).map(move |word| match number {
        0 => 0,
        // Half of the page compresses.
        _ if word % 2 == 0 => u64::from(number),
        _ => (first + word).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    })
}

fn write(bytes: &mut [u8], page: usize, number: u32) {
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words(page, number)) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
}

fn check(bytes: &[u8], page: usize, number: u32) {
    let is_right =
        bytes.chunks_exact(8).zip(words(page, number)).all(|(chunk, word)| chunk == word.to_ne_bytes());
    assert!(is_right, "page {page}, written with {number}, begins with {:?}", &bytes[..16]);
}

/// Does `operations` operations within this limit. Returns how many 64 KiB folios left.
fn operate(seed: u64, limit: &str, mebibytes: usize, operations: usize) -> u64 {
    let file = Device::file("/var/tmp").size("256M").priority(0);
    let builder = Swap::builder().limit(limit).device(Device::zram().priority(1)).device(file);
    let swap = builder.sigbus().validate().build().unwrap();
    let mut region = swap.region_with(mebibytes << 20, FaultMode::Sigbus).unwrap();
    let mut random = Random(Numbers(seed));
    let mut written: Vec<u32> = vec![0; region.len() / PAGE];
    for number in 1..=operations as u32 {
        let pages = random.range(written.len());
        let bytes = pages.start * PAGE..pages.end * PAGE;
        match random.below(12) {
            0..4 => {
                for page in pages {
                    write(&mut region.as_mut_slice()[page * PAGE..][..PAGE], page, number);
                    written[page] = number;
                }
            }
            4..7 => {
                let region = region.as_slice();
                pages.for_each(|page| check(&region[page * PAGE..][..PAGE], page, written[page]));
            }
            7 => region.page_out(bytes).unwrap(),
            8 => region.cold(bytes).unwrap(),
            9 => region.will_need(bytes).unwrap(),
            10 => {
                region.dont_need(bytes).unwrap();
                written[pages].fill(0);
            }
            _ => {
                // One word of each page is written; the others must stay.
                for page in pages.filter(|page| page % 3 == 0) {
                    let bytes = &mut region.as_mut_slice()[page * PAGE..][..PAGE];
                    let word = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                    assert_eq!(Some(word), words(page, written[page]).next(), "page {page}");
                    bytes[..8].copy_from_slice(&word.to_ne_bytes());
                }
            }
        }
        // The region grows, by parts of huge pages too.
        if number % 500 == 0 {
            region.grow(region.len() + 37 * PAGE).unwrap();
            written.resize(region.len() / PAGE, 0);
        }
    }
    for (page, &number) in written.iter().enumerate() {
        check(&region.as_slice()[page * PAGE..][..PAGE], page, number);
    }
    let figure = |name| swap.statistics().counter(name).expect("its name");
    assert_eq!((figure("violations"), figure("pages_poisoned")), (0, 0), "seed {seed}");
    figure("64kB/swpout")
}

#[test]
fn every_page_is_what_was_last_written() {
    for seed in 1..=3 {
        let folios = operate(seed, "16M", 40, 1500);
        assert!(folios > 0, "seed {seed}: no folio of 64 KiB left");
    }
}

/// At this limit there is room for huge pages.
#[test]
fn every_page_of_more_memory_is_what_was_last_written() {
    let folios = operate(11, "160M", 320, 1500);
    assert!(folios > 0, "no folio of 64 KiB left");
}

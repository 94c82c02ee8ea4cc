//! The LZ4 block format for one page.
//!
//! `lz4_flex` 0.14 without its safe features, against the C library (lz4-sys 1.11, LZ4 1.10) with
//! `LZ4_compress_fast_extState` and `LZ4_decompress_safe`, ns per page, best of 7 rounds over up to 4000 real pages
//! (shared libraries, programs, /usr/share) on an EPYC:
//!
//! | pages | in, Rust | in, C | out, Rust | out, C |
//! |---|---|---|---|---|
//! | 2:1 | 6089 | 5617 | 1348 | 1100 |
//! | 3:1 | 4143 | 3812 | 1372 | 1012 |
//! | incompressible | 1405 | 1500 | | |
//!
//! C is 8 % faster in and 18 to 26 % out, but it is a C library with `malloc` in it: it needs a C compiler at install
//! time and has to be kept out of libc inside somebody else's process. The Rust one needs `memcpy` and `memset`, and
//! its decoder checks bounds on any input. A decoder of our own for blocks of one page could close the gap.
//! Incompressible pages need no test of their own: LZ4's growing steps give up within 0.7 to 1.4 µs.

use crate::page::{PAGE_SIZE, Page};

/// Bytes a page may grow to when it does not compress.
pub const OUTPUT_MAX: usize = lz4_flex::block::get_maximum_output_size(PAGE_SIZE);

/// The compressor's hash table, in the caller's memory: 16 KiB, of which a page uses half.
pub struct Table(lz4_flex::block::CompressTable);

// With lz4_flex's `alloc` feature (which some other crate of the build may switch on) the table would be a heap box.
const _: () = assert!(size_of::<Table>() >= 8192, "lz4_flex must be built without its `alloc` feature");

impl Table {
    /// An empty table.
    pub const fn new() -> Self {
        Self(lz4_flex::block::CompressTable::small())
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// Compresses a page; returns the length in `output`, or `None` when that is above `limit` bytes.
#[inline]
pub fn compress(
    page: &Page,
    output: &mut [u8; OUTPUT_MAX],
    table: &mut Table,
    limit: usize,
) -> Option<usize> {
    match lz4_flex::block::compress_into_with_table(page, output, &mut table.0) {
        Ok(len) if len <= limit => Some(len),
        _ => None,
    }
}

/// The bytes are no LZ4 block of exactly one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Expands a block into a page. Memory-safe on any input.
///
/// # Errors
///
/// [`Malformed`] when the input is not the block of one whole page; `page` then holds rubbish.
#[inline]
pub fn decompress(input: &[u8], page: &mut Page) -> Result<(), Malformed> {
    match lz4_flex::block::decompress_into(input, page) {
        Ok(PAGE_SIZE) => Ok(()),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of a page that were looked at for what repeats: each is noted in the table.
    fn looked_at(page: &Page) -> (usize, Option<usize>) {
        let (mut table, mut output) = (Table::new(), [0; OUTPUT_MAX]);
        let len = compress(page, &mut output, &mut table, PAGE_SIZE - 1);
        let lz4_flex::block::CompressTable::Small(noted) = &table.0 else {
            panic!("a page needs no large table")
        };
        let noted = std::format!("{noted:?}"); // its entries are private, but it prints them
        let (_, noted) = noted.split_once('[').unwrap();
        let places: std::vec::Vec<&str> =
            noted.split([',', ' ', ']', '}']).filter(|word| !word.is_empty()).collect();
        assert_eq!(places.len(), 4096);
        (places.iter().filter(|&&place| place != "0").count(), len)
    }

    /// The early exit: of an incompressible page ever fewer places are looked at, an eighth of them in all.
    #[test]
    fn an_incompressible_page_is_given_up_early() {
        let mut state = 1u64;
        for _ in 0..100 {
            let page: Page = core::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            });
            let (looked, len) = looked_at(&page);
            assert_eq!(len, None);
            assert!((100..PAGE_SIZE / 8).contains(&looked), "{looked} places");
        }
    }
}

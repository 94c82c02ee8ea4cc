//! The LZ4 block format for one page, with an encoder and a decoder that know that it is one page.
//!
//! An evictor spends its time on compression, and a page is smaller than the inputs that LZ4's
//! libraries are made for: the positions in 4096 bytes fit a table of 8 KiB, no stream continues,
//! and input and output need no limits of their own. Source of the format: *LZ4 Block Format
//! Description* (`doc/lz4_Block_format.md` of the reference implementation). Any decoder of the
//! format reads these blocks, and this decoder reads any block of a page.
//!
//! The table compares it with `lz4_flex` 0.14 without its safe features (used before) and
//! the C library (lz4-sys 1.11, LZ4 1.10: `LZ4_compress_fast_extState` with
//! accelerations 1 and 2, `LZ4_decompress_safe`): ns per page and ratio, best of 5 rounds over up
//! to 8000 pages on an EPYC (`cargo bench -p folioswap-devices --bench lz4`). *Files* are pages of
//! shared libraries and programs, *heap* is the memory of a CPython with some hundred thousand
//! objects, *lines* is the text of `folioswap bench sort`; the others are synthetic
//! (`tests/common/data.rs`), and *2:1* has many short matches. The three columns "out" are
//! decompression. The speed costs 0 to 9 % of the ratio:
//!
//! | pages | ours | ratio | Rust | ratio | C | ratio | C 2 | ratio | ours out | Rust out | C out |
//! |---|---|---|---|---|---|---|---|---|---|---|---|
//! | 2:1 | 6382 | 1.92 | 7037 | 1.93 | 6792 | 1.94 | 6650 | 1.83 | 1429 | 1529 | 1102 |
//! | 3:1 | 5481 | 2.89 | 5832 | 2.76 | 5627 | 2.77 | 5752 | 2.67 | 1577 | 1721 | 1251 |
//! | incompressible | 420 | 1.00 | 675 | 1.00 | 936 | 1.00 | 875 | 1.00 | 77 | 128 | 118 |
//! | words of a text | 4649 | 1.27 | 6643 | 1.39 | 6561 | 1.41 | 5478 | 1.31 | 1152 | 1235 | 967 |
//! | numbers | 4576 | 1.37 | 6139 | 1.41 | 6023 | 1.41 | 5574 | 1.38 | 2017 | 1729 | 2100 |
//! | files | 4585 | 1.76 | 6191 | 1.83 | 5961 | 1.84 | 5505 | 1.76 | 1386 | 1514 | 1150 |
//! | lines | 2581 | 1.53 | 4361 | 1.56 | 4210 | 1.56 | 3145 | 1.54 | 914 | 850 | 699 |
//! | heap | 2747 | 3.49 | 3189 | 3.49 | 3176 | 3.49 | 3102 | 3.46 | 1258 | 1413 | 978 |
//!
//! The C library cannot be in the agent: its Rust crate needs `std`, and its objects need `malloc`.

mod decode;
mod encode;

pub use decode::{Malformed, decompress};
pub use encode::{OUTPUT_MAX, Table, compress};

/// Bytes of the shortest match.
const MATCH_MIN: usize = 4;
/// The format keeps the last 5 bytes out of matches, and lets no match begin within the last 12.
const LITERALS_LAST: usize = 5;
const MATCH_LAST: usize = 12;
/// A length of this value or more continues in further bytes.
const LONG: usize = 15;

#[cfg(test)]
mod tests;

//! The LZ4 compression ratio of the data that the programs write.

use crate::data::{Kind, PAGE, fill};

/// The ratio of plain to compressed size of `pages` pages that `fill` makes, compressed by LZ4 in
/// blocks of `block` bytes.
pub fn lz4_ratio(kind: Kind, block: usize, pages: u64) -> f64 {
    let mut bytes = vec![0u8; pages as usize * PAGE];
    for (page, out) in bytes.chunks_exact_mut(PAGE).enumerate() {
        fill(out, kind, 1, 0, page as u64);
    }
    let stored: usize = bytes
        .chunks(block)
        .map(|chunk| lz4::block::compress(chunk, None, false).expect("compressible").len())
        .sum();
    bytes.len() as f64 / stored as f64
}

#[cfg(test)]
mod tests;

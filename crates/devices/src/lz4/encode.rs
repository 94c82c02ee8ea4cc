//! Encoding one page into a block.
//!
//! The search is that of LZ4's fast mode: a table says where the same five bytes may have been seen
//! last, and the steps between two examined positions grow as long as nothing is found. Two things
//! differ. The steps grow after 16 positions in vain instead of 64, because a page has only 4096.
//! And after a match that followed [`FAR`] literals or more, the next search begins with every
//! second position: such data are records with fields that differ, whose matches lie as far apart,
//! and a match that a step passes over is recovered by looking backwards from the position found.

use super::{LITERALS_LAST, LONG, MATCH_LAST, MATCH_MIN};
use crate::page::{PAGE_SIZE, Page};
use core::ptr;

/// Entries of the table, each a position in the page.
const ENTRIES: usize = 4096;
/// Positions examined in vain after which the step grows by one, as a power of two.
const PATIENCE: u32 = 4;
/// Literals before a match from which on the next search begins with steps of two.
const FAR: usize = 8;
/// Bytes written by one copy of literals, possibly more than there are.
const COPY: usize = 32;

/// Most bytes of a block: the format's maximum for all literals, and the bytes that copies write
/// beyond their end.
pub const OUTPUT_MAX: usize = PAGE_SIZE + PAGE_SIZE / 255 + 16 + COPY;

/// End of a search: no match begins at or behind this position.
const SEARCH_END: usize = PAGE_SIZE - MATCH_LAST;
/// The last position at which a match may end.
const MATCH_END: usize = PAGE_SIZE - LITERALS_LAST;

/// The compressor's hash table, in the caller's memory: 8 KiB. All-zero memory is a valid value.
pub struct Table([u16; ENTRIES]);

impl Table {
    /// An empty table.
    pub const fn new() -> Self {
        Self([0; ENTRIES])
    }

    /// Number of entries that are not empty.
    #[cfg(test)]
    fn noted(&self) -> usize {
        self.0.iter().filter(|&&place| place != 0).count()
    }

    /// Notes that `bytes` stand at `at`, and returns the position at which the same bytes may have
    /// stood before.
    #[inline(always)]
    fn replace(&mut self, bytes: u64, at: usize) -> usize {
        // The hash covers five bytes, as in the reference implementation: the lowest in memory are
        // the highest of the product's argument.
        let hash = ((bytes << 24).wrapping_mul(889_523_592_379) >> (64 - ENTRIES.ilog2())) as usize;
        usize::from(core::mem::replace(&mut self.0[hash], at as u16))
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// The step to the next position of a search.
#[derive(Clone, Copy)]
struct Search {
    /// The step in [`PATIENCE`]-th parts, plus the positions examined.
    patience: usize,
}

impl Search {
    const NEAR: Search = Search { patience: 1 << PATIENCE };
    const FAR: Search = Search { patience: 2 << PATIENCE };

    #[inline(always)]
    fn step(&mut self) -> usize {
        let step = self.patience >> PATIENCE;
        self.patience += 1;
        step
    }
}

/// # Safety
/// `at + 8` is at most [`PAGE_SIZE`].
#[inline(always)]
unsafe fn eight(page: &Page, at: usize) -> u64 {
    debug_assert!(at + 8 <= PAGE_SIZE);
    // SAFETY: the caller guarantees it.
    u64::from_le(unsafe { page.as_ptr().add(at).cast::<u64>().read_unaligned() })
}

/// Whether the same four bytes stand at two positions.
///
/// # Safety
/// As [`eight`].
#[inline(always)]
unsafe fn begins_alike(page: &Page, found: usize, bytes: u64) -> bool {
    debug_assert!(found + 8 <= PAGE_SIZE);
    // SAFETY: the caller guarantees it.
    u32::from_le(unsafe { page.as_ptr().add(found).cast::<u32>().read_unaligned() }) == bytes as u32
}

/// Compresses a page and returns the length in `output`; `None` when that is above `limit` bytes.
/// The bytes of `output` behind that length may be overwritten. Cost: 0.4 µs for an incompressible
/// page, 1.4 to 4.4 µs for others.
#[inline]
pub fn compress(
    page: &Page,
    output: &mut [u8; OUTPUT_MAX],
    table: &mut Table,
    limit: usize,
) -> Option<usize> {
    table.0.fill(0);
    let mut block = Block { page, output, len: 0 };
    // The page is read below only at positions before SEARCH_END, or up to MATCH_END: `at` is
    // compared with it before it is used, and the table holds only such positions and 0.

    // Bytes of the page that the block holds.
    let mut done = 0;
    let mut next = Search::NEAR;
    let mut at = 1;
    'search: while at < SEARCH_END {
        let mut search = next;
        let mut found;
        // SAFETY: see above.
        let mut bytes = unsafe { eight(page, at) };
        loop {
            found = table.replace(bytes, at);
            // SAFETY: see above.
            if unsafe { begins_alike(page, found, bytes) } {
                break;
            }
            at += search.step();
            if at >= SEARCH_END {
                break 'search;
            }
            // SAFETY: see above.
            bytes = unsafe { eight(page, at) };
        }
        while at > done && found > 0 && page.get(at - 1) == page.get(found - 1) {
            at -= 1;
            found -= 1;
        }
        next = if at - done >= FAR { Search::FAR } else { Search::NEAR };
        let mut token = block.literals(done, at);
        loop {
            let end = match_end(page, at + MATCH_MIN, found + MATCH_MIN);
            block.copy(token, at - found, end - at);
            (at, done) = (end, end);
            if at >= SEARCH_END {
                break 'search;
            }
            // Another match often follows at once.
            // SAFETY: see above.
            let (before, bytes) = unsafe { (eight(page, at - 2), eight(page, at)) };
            table.replace(before, at - 2);
            found = table.replace(bytes, at);
            // SAFETY: see above.
            if !unsafe { begins_alike(page, found, bytes) } {
                break;
            }
            token = block.no_literals();
        }
        at += 1;
    }
    block.last_literals(done);
    (block.len <= limit).then_some(block.len)
}

/// The position at which the bytes from `at` on stop being equal to those from `found` on, which
/// lie before them.
#[inline(always)]
fn match_end(page: &Page, mut at: usize, mut found: usize) -> usize {
    while at + 8 <= MATCH_END {
        // SAFETY: `at + 8` is in range by the condition, and `found` lies before `at`.
        let different = unsafe { eight(page, at) ^ eight(page, found) };
        if different != 0 {
            return at + different.trailing_zeros() as usize / 8;
        }
        (at, found) = (at + 8, found + 8);
    }
    while at < MATCH_END && page[at] == page[found] {
        (at, found) = (at + 1, found + 1);
    }
    at
}

/// The block that is being written. `len` never exceeds the format's maximum for the bytes that the
/// block holds so far, so each write of up to [`COPY`] bytes at `len` lies within the output.
struct Block<'a> {
    page: &'a Page,
    output: &'a mut [u8; OUTPUT_MAX],
    len: usize,
}

impl Block<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        debug_assert!(self.len < OUTPUT_MAX);
        // SAFETY: `len` is less than the format's maximum for a whole page, which is within the
        // output.
        unsafe { *self.output.as_mut_ptr().add(self.len) = byte };
        self.len += 1;
    }

    /// Writes the rest of a length, beyond [`LONG`].
    #[inline(always)]
    fn rest(&mut self, mut rest: usize) {
        while rest >= 255 {
            self.byte(255);
            rest -= 255;
        }
        self.byte(rest as u8);
    }

    /// Writes a token without literals, and returns its position.
    #[inline(always)]
    fn no_literals(&mut self) -> usize {
        self.byte(0);
        self.len - 1
    }

    /// Writes a token and the bytes `from..to` of the page as literals, and returns the token's
    /// position. `to` is at most [`SEARCH_END`].
    #[inline(always)]
    fn literals(&mut self, from: usize, to: usize) -> usize {
        let (token, count) = (self.len, to - from);
        self.byte((count.min(LONG) as u8) << 4);
        if count >= LONG {
            self.rest(count - LONG);
        }
        let mut at = 0;
        while at < count && from + at + COPY <= PAGE_SIZE {
            debug_assert!(self.len + at + COPY <= OUTPUT_MAX);
            // SAFETY: the page has COPY bytes from there on, by the condition. In the output `len +
            // at` is at most the format's maximum for a page of literals, and COPY bytes stand
            // behind that (`OUTPUT_MAX`). They do not overlap.
            unsafe {
                let from = self.page.as_ptr().add(from + at);
                ptr::copy_nonoverlapping(from, self.output.as_mut_ptr().add(self.len + at), COPY);
            }
            at += COPY;
        }
        if at < count {
            self.output[self.len + at..self.len + count].copy_from_slice(&self.page[from + at..to]);
        }
        self.len += count;
        token
    }

    /// Writes a match of `len` bytes at `distance` before; it completes this token.
    #[inline(always)]
    fn copy(&mut self, token: usize, distance: usize, len: usize) {
        let [low, high] = (distance as u16).to_le_bytes();
        self.byte(low);
        self.byte(high);
        let len = len - MATCH_MIN;
        debug_assert!(token < self.len);
        // SAFETY: the token was written, so it lies within the output.
        unsafe { *self.output.as_mut_ptr().add(token) |= len.min(LONG) as u8 };
        if len >= LONG {
            self.rest(len - LONG);
        }
    }

    /// Ends the block with the bytes from `from` on as literals.
    fn last_literals(&mut self, from: usize) {
        let count = PAGE_SIZE - from;
        self.byte((count.min(LONG) as u8) << 4);
        if count >= LONG {
            self.rest(count - LONG);
        }
        self.output[self.len..self.len + count].copy_from_slice(&self.page[from..]);
        self.len += count;
    }
}

#[cfg(test)]
mod tests;

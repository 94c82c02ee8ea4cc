//! Decoding a block into one page.

use super::{LONG, MATCH_MIN};
use crate::page::{PAGE_SIZE, Page};
use core::ptr;

/// Bytes copied for a short match, whatever its length.
const SHORT_MATCH: usize = LONG - 1 + MATCH_MIN;
/// Bytes of one step of a copy, and of one step of a copy from nearby.
const STEP: usize = 16;
const WORD: usize = 8;

/// The bytes are no LZ4 block of exactly one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Expands a block into a page. Memory-safe on any input. Cost: 0.5 to 1.2 µs.
///
/// # Errors
///
/// [`Malformed`] when the input is not the block of one whole page; `page` then holds arbitrary
/// bytes.
#[inline]
pub fn decompress(input: &[u8], page: &mut Page) -> Result<(), Malformed> {
    let byte = |from: usize| input.get(from).copied().ok_or(Malformed);
    // The current positions in the block and in the page.
    let (mut from, mut at) = (0, 0);
    loop {
        let token = byte(from)?;
        from += 1;
        let mut literals = usize::from(token >> 4);
        // The common case: few literals, far from both ends.
        if literals < LONG && from + STEP + 2 <= input.len() && at + STEP <= PAGE_SIZE {
            // SAFETY: both have 16 bytes from there on, by the condition; they do not overlap.
            unsafe { copy(input.as_ptr().add(from), page.as_mut_ptr().add(at), 1) };
        } else {
            if literals == LONG {
                let (rest, end) = rest(input, from)?;
                (literals, from) = (literals + rest, end);
            }
            if from + literals + STEP <= input.len() && at + literals + STEP <= PAGE_SIZE {
                // SAFETY: both have a step more than the literals, by the condition; they do not
                // overlap.
                unsafe { copy(input.as_ptr().add(from), page.as_mut_ptr().add(at), literals) };
            } else {
                let bytes = input.get(from..from + literals).ok_or(Malformed)?;
                page.get_mut(at..at + literals).ok_or(Malformed)?.copy_from_slice(bytes);
                if from + literals == input.len() {
                    // A block ends with literals whose token announces no match.
                    let is_whole = at + literals == PAGE_SIZE && token & 15 == 0;
                    return if is_whole { Ok(()) } else { Err(Malformed) };
                }
            }
        }
        (from, at) = (from + literals, at + literals);
        let distance = usize::from(u16::from_le_bytes([byte(from)?, byte(from + 1)?]));
        from += 2;
        if distance == 0 || distance > at {
            return Err(Malformed);
        }
        let mut len = usize::from(token & 15);
        if len < LONG && distance >= WORD && at + SHORT_MATCH <= PAGE_SIZE {
            // SAFETY: the page has that many bytes from `at` on, and `distance` before it. The
            // distance is a word or more, so no copy of a word overlaps.
            unsafe {
                let to = page.as_mut_ptr().add(at);
                let found = to.sub(distance);
                ptr::copy_nonoverlapping(found, to, WORD);
                ptr::copy_nonoverlapping(found.add(WORD), to.add(WORD), WORD);
                ptr::copy_nonoverlapping(found.add(2 * WORD), to.add(2 * WORD), SHORT_MATCH - 2 * WORD);
            }
            at += len + MATCH_MIN;
            continue;
        }
        if len == LONG {
            let (rest, end) = rest(input, from)?;
            (len, from) = (len + rest, end);
        }
        len += MATCH_MIN;
        if distance >= STEP && at + len + STEP <= PAGE_SIZE {
            // SAFETY: the page has a step more than the match from `at` on. The source lies at
            // least a step before, so no copy of a step overlaps.
            unsafe {
                let to = page.as_mut_ptr().add(at);
                copy(to.sub(distance), to, len);
            }
        } else if len <= PAGE_SIZE - at {
            repeat(page, at, distance, len);
        } else {
            return Err(Malformed);
        }
        at += len;
    }
}

/// Copies `len` bytes in steps of [`STEP`], at least one, so up to a step more than `len` is
/// written.
///
/// # Safety
/// These bytes can be read and written, and `from` does not lie less than a step before `to`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    loop {
        // SAFETY: the caller guarantees it.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), STEP) };
        at += STEP;
        if at >= len {
            return;
        }
    }
}

/// The rest of a long length, from `from` on, and the position of its end. A length above a page
/// and a bit is malformed.
#[inline(always)]
fn rest(input: &[u8], mut from: usize) -> Result<(usize, usize), Malformed> {
    let mut rest = 0;
    loop {
        let byte = usize::from(*input.get(from).ok_or(Malformed)?);
        (rest, from) = (rest + byte, from + 1);
        if byte < 255 {
            return Ok((rest, from));
        }
        if rest > PAGE_SIZE {
            return Err(Malformed);
        }
    }
}

/// Copies `len` bytes from `distance` (1 or more, within the page) before `at` to `at`, as if byte
/// by byte. The bytes fit the page.
#[inline(always)]
fn repeat(page: &mut Page, at: usize, distance: usize, len: usize) {
    let end = at + len;
    let mut to = at;
    let mut distance = distance;
    if distance < WORD {
        // Bytes that repeat at so short a distance repeat at any multiple of it, here one of a word
        // or more.
        let longer = distance * WORD.div_ceil(distance);
        let known = (at + longer - distance).min(end);
        while to < known {
            page[to] = page[to - distance];
            to += 1;
        }
        distance = longer;
    }
    // Copies in words up to the last bytes of the page; a word may reach beyond the end of the
    // match.
    while to < end && to + WORD <= PAGE_SIZE {
        // SAFETY: the 8 bytes from `to` on are within the page, by the condition, and so are those
        // `distance` before; they do not overlap.
        unsafe {
            let to = page.as_mut_ptr().add(to);
            ptr::copy_nonoverlapping(to.sub(distance), to, WORD);
        }
        to += WORD;
    }
    while to < end {
        page[to] = page[to - distance];
        to += 1;
    }
}

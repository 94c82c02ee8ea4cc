//! A page, and pages that hold one repeated word.

/// Bytes in a page.
pub const PAGE_SIZE: usize = 4096;

/// A size of the kernel's pages that nothing here can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherPageSize(usize);

impl core::fmt::Display for OtherPageSize {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            to,
            "this kernel's pages have {} KiB; folioswap works with pages of 4 KiB only: boot a kernel that has them (on \
             Debian linux-image-arm64, not linux-image-arm64-16k)",
            self.0 >> 10
        )
    }
}

impl core::error::Error for OtherPageSize {}

/// Whether a kernel whose pages have so many bytes will do.
///
/// # Errors
/// It will not; the message says what mends that.
pub fn check_page_size(bytes: usize) -> Result<(), OtherPageSize> {
    if bytes == PAGE_SIZE { Ok(()) } else { Err(OtherPageSize(bytes)) }
}

/// The bytes of one page. No alignment is required.
pub type Page = [u8; PAGE_SIZE];

const WORDS: usize = PAGE_SIZE / 8;
/// Words compared in each step of the full scan. Two cache lines let the loop vectorise and still
/// stop early.
const STEP: usize = 16;

#[inline(always)]
fn word(page: &Page, index: usize) -> u64 {
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&page[index * 8..index * 8 + 8]);
    u64::from_le_bytes(bytes)
}

/// The 64-bit word that fills the whole page, if there is one (0 for a zero page).
///
/// An ordinary page is rejected by its first, middle and last words (5 ns). A filled page costs one
/// read of the page (0.1 µs).
#[inline]
pub fn same_filled(page: &Page) -> Option<u64> {
    let first = word(page, 0);
    if word(page, WORDS - 1) != first || word(page, WORDS / 2) != first || word(page, 1) != first {
        return None;
    }
    same_filled_slow(page, first)
}

fn same_filled_slow(page: &Page, first: u64) -> Option<u64> {
    let mut index = 0;
    while index < WORDS {
        let mut different = 0;
        for step in 0..STEP {
            different |= word(page, index + step) ^ first;
        }
        if different != 0 {
            return None;
        }
        index += STEP;
    }
    Some(first)
}

/// Fills a page with one 64-bit word: the inverse of [`same_filled`].
#[inline]
pub fn fill(page: &mut Page, pattern: u64) {
    for chunk in page.chunks_exact_mut(8) {
        chunk.copy_from_slice(&pattern.to_le_bytes());
    }
}

const _: () = assert!(WORDS.is_multiple_of(STEP));

#[cfg(test)]
mod tests;

use super::*;
use crate::page::{PAGE_SIZE, Page};
use proptest::prelude::*;

/// Bytes around the output, which must stay unchanged.
const CANARY: [u8; 64] = [0x5a; 64];

#[repr(C)]
struct Guarded<const BYTES: usize> {
    before: [u8; 64],
    bytes: [u8; BYTES],
    after: [u8; 64],
}

impl<const BYTES: usize> Guarded<BYTES> {
    fn new() -> Self {
        Guarded { before: CANARY, bytes: [0xaa; BYTES], after: CANARY }
    }
    fn is_untouched(&self) -> bool {
        self.before == CANARY && self.after == CANARY
    }
}

fn compressed(page: &Page) -> std::vec::Vec<u8> {
    let (mut table, mut output) = (Table::new(), Guarded::<OUTPUT_MAX>::new());
    let len = compress(page, &mut output.bytes, &mut table, OUTPUT_MAX).unwrap();
    assert!(output.is_untouched());
    output.bytes[..len].to_vec()
}

fn ours(block: &[u8]) -> Result<Page, Malformed> {
    let mut page = Guarded::<PAGE_SIZE>::new();
    let result = decompress(block, &mut page.bytes);
    assert!(page.is_untouched());
    result.map(|()| page.bytes)
}

/// The page of a block by the letter of the format, byte by byte; `None` if the block is not one of
/// a whole page.
fn by_the_book(block: &[u8]) -> Option<Page> {
    let mut bytes = block.iter().copied();
    let mut page = std::vec::Vec::new();
    let length = |bytes: &mut dyn Iterator<Item = u8>, nibble: u8| {
        let mut len = usize::from(nibble);
        let mut more = if nibble == 15 { 255 } else { 0 };
        while more == 255 {
            more = bytes.next()?;
            len += usize::from(more);
        }
        Some(len)
    };
    loop {
        let token = bytes.next()?;
        for _ in 0..length(&mut bytes, token >> 4)? {
            page.push(bytes.next()?);
        }
        let Some(low) = bytes.next() else {
            return (token & 15 == 0).then(|| page.try_into().ok())?;
        };
        let distance = usize::from(u16::from_le_bytes([low, bytes.next()?]));
        let found = page.len().checked_sub(distance).filter(|_| distance > 0)?;
        let len = length(&mut bytes, token & 15)? + MATCH_MIN;
        (0..len).for_each(|at| page.push(page[found + at]));
        if page.len() > PAGE_SIZE {
            return None;
        }
    }
}

/// The page that another implementation makes of a block.
fn theirs(block: &[u8]) -> Option<Page> {
    let mut page = [0x55; PAGE_SIZE];
    matches!(lz4_flex::block::decompress_into(block, &mut page), Ok(PAGE_SIZE)).then_some(page)
}

/// The page that the reference implementation makes of a block.
fn reference(block: &[u8]) -> Option<Page> {
    let page = lz4::block::decompress(block, Some(PAGE_SIZE as i32)).ok()?;
    page.try_into().ok()
}

/// Pages of runs: literals of few or many values, copies from before at any distance, repeats of
/// one byte.
fn pages() -> impl Strategy<Value = Page> {
    let run = (0..4u8, 1..80usize, any::<u16>(), 1..=255u8);
    (any::<u64>(), proptest::collection::vec(run, 1..400)).prop_map(|(seed, runs)| {
        let (mut page, mut at, mut state) = ([0u8; PAGE_SIZE], 0, seed | 1);
        for (kind, len, back, values) in runs.iter().cycle() {
            for _ in 0..*len {
                if at == PAGE_SIZE {
                    return page;
                }
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                page[at] = match kind {
                    0 => (state >> 56) as u8,
                    1 => (state >> 56) as u8 % values,
                    2 if at > 0 => page[at - 1 - usize::from(*back) % at],
                    _ => *values,
                };
                at += 1;
            }
        }
        page
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 6000 }))]

    #[test]
    fn everybody_reads_what_is_written(page in pages()) {
        let block = compressed(&page);
        prop_assert_eq!(ours(&block), Ok(page));
        prop_assert_eq!(theirs(&block), Some(page));
        #[cfg(not(miri))]
        prop_assert_eq!(reference(&block), Some(page));
    }

    #[test]
    fn what_others_write_is_read(page in pages()) {
        prop_assert_eq!(ours(&lz4_flex::block::compress(&page)), Ok(page));
        #[cfg(not(miri))]
        {
            let high = lz4::block::CompressionMode::HIGHCOMPRESSION(9);
            prop_assert_eq!(ours(&lz4::block::compress(&page, Some(high), false).unwrap()), Ok(page));
        }
    }

    /// Bytes that differ, are missing or are added: a block that is still valid by the letter of
    /// the format is read accordingly, and every other is refused.
    #[test]
    fn a_damaged_block_is_refused_or_read_by_the_book(
        page in pages(),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        cut in 0..24usize,
    ) {
        let mut block = compressed(&page);
        for (at, byte) in changes {
            let at = usize::from(at) % block.len();
            block[at] = byte;
        }
        match cut {
            0..8 => block.truncate(block.len().saturating_sub(cut)),
            8..16 => block.extend((8..cut).map(|byte| byte as u8)),
            _ => {}
        }
        prop_assert_eq!(ours(&block).ok(), by_the_book(&block));
    }

    /// Tokens, lengths and distances without sense: often a whole page or more.
    #[test]
    fn rubbish_is_read_by_the_book(
        start in proptest::collection::vec(any::<u8>(), 0..40),
        tokens in proptest::collection::vec((any::<u8>(), 0..300u16, any::<u8>()), 0..400),
    ) {
        let mut block = start;
        for (token, distance, more) in tokens {
            block.push(token);
            block.extend((0..token >> 4).map(|byte| byte ^ more));
            block.extend(distance.to_le_bytes());
            if token & 15 == 15 {
                block.push(more);
            }
        }
        prop_assert_eq!(ours(&block).ok(), by_the_book(&block));
    }
}

#[test]
fn pages_at_the_borders_of_the_format() {
    let repeats = |period: usize| core::array::from_fn(|at| (at % period) as u8);
    let mut pages: std::vec::Vec<Page> = (1..40).map(repeats).collect();
    pages.extend([255, 256, 257, 2048, 4095, 4096].map(repeats));
    // A match that begins at the last possible position, and later; and one that ends where the
    // page does.
    for last in 0..24 {
        let random = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1];
        pages.push(core::array::from_fn(
            |at| {
                if at + last < PAGE_SIZE { random(at) } else { random(at % 64) }
            },
        ));
        pages.push(core::array::from_fn(|at| if at < last { random(at) } else { 7 }));
    }
    for page in pages {
        let block = compressed(&page);
        assert_eq!((ours(&block), theirs(&block)), (Ok(page), Some(page)));
        #[cfg(not(miri))]
        assert_eq!(reference(&block), Some(page));
    }
}

#[test]
fn what_is_above_the_limit_is_not_kept() {
    let page: Page = core::array::from_fn(|at| (at / 100) as u8);
    let len = compressed(&page).len();
    let (mut table, mut output) = (Table::new(), [0; OUTPUT_MAX]);
    assert_eq!(compress(&page, &mut output, &mut table, len), Some(len));
    assert_eq!(compress(&page, &mut output, &mut table, len - 1), None);
}

/// Nothing is left of one page when the next one is compressed.
#[test]
fn a_table_that_was_used_finds_nothing_of_before() {
    let first: Page = core::array::from_fn(|at| (at * 7 % 251) as u8);
    let second: Page = core::array::from_fn(|at| (at * 11 % 241) as u8);
    let (mut table, mut output) = (Table::new(), [0; OUTPUT_MAX]);
    compress(&first, &mut output, &mut table, OUTPUT_MAX);
    let len = compress(&second, &mut output, &mut table, OUTPUT_MAX).unwrap();
    assert_eq!(output[..len], compressed(&second));
}

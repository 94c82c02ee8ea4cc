use super::*;
use proptest::prelude::*;

fn page_of(word: impl Fn(usize) -> u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    for (index, place) in page.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *place = word(index).to_le_bytes();
    }
    page
}

fn page_of_fours(word: impl Fn(usize) -> u32) -> Page {
    page_of(|index| u64::from(word(2 * index)) | u64::from(word(2 * index + 1)) << 32)
}

fn packed(page: &Page) -> Option<Vec<u8>> {
    let mut output = [0xa5; OUTPUT_MAX];
    compress(page, &mut output).map(|length| output[..length].to_vec())
}

fn mixed(index: usize) -> u64 {
    (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn round_trip(page: &Page) -> usize {
    let bytes = packed(page).expect("it is to be packed");
    let mut out = [0x5a; PAGE_SIZE];
    decompress(&bytes, &mut out).unwrap();
    assert!(out == *page);
    bytes.len()
}

#[test]
fn every_number_and_place_of_differing_bytes_comes_back() {
    for count in 1..=4u32 {
        for low in 0..=8 - count {
            let mask = (u64::MAX >> (64 - 8 * count)) << (8 * low);
            let page = page_of(|index| 0x0123_4567_89ab_cdef & !mask | mixed(index) & mask);
            assert_eq!(round_trip(&page), 1 + 8 + 512 * count as usize, "{count} from {low}");
        }
    }
    for count in 1..=2u32 {
        for low in 0..=4 - count {
            let mask = (u32::MAX >> (32 - 8 * count)) << (8 * low);
            let page = page_of_fours(|index| 0x0123_4567 & !mask | (mixed(index) >> 20) as u32 & mask);
            assert_eq!(round_trip(&page), 1 + 4 + 1024 * count as usize, "{count} from {low}");
        }
    }
}

#[test]
fn what_numpy_holds_takes_a_quarter_to_a_half() {
    assert_eq!(round_trip(&page_of(|index| index as u64 + 1_000_000)), 1 + 8 + 512 * 2);
    assert_eq!(round_trip(&page_of(|index| mixed(index) % 1_000_000)), 1 + 8 + 512 * 3);
    assert_eq!(round_trip(&page_of_fours(|index| (mixed(index) >> 32) as u32 % 20)), 1 + 4 + 1024);
    assert_eq!(round_trip(&page_of_fours(|index| ((mixed(index) >> 32) % 256) as f32 as u32)), 1 + 4 + 1024);
    assert_eq!(
        round_trip(&page_of(|index| 0x7f12_3400_0000 + 48 * mixed(index) % (1 << 24))),
        1 + 8 + 512 * 3
    );
}

#[test]
fn everything_else_is_left_to_lz4() {
    assert_eq!(packed(&page_of(mixed)), None, "random");
    assert_eq!(packed(&page_of(|_| 7)), None, "same-filled");
    assert_eq!(packed(&page_of(|index| if index % 8 == 3 { mixed(index) % 200 } else { 0 })), None, "sparse");
    assert_eq!(packed(&page_of(|index| [3, 500][index % 2])), None, "two words in turn");
    let relocation = |index: usize| if index % 3 == 1 { 8 } else { mixed(index) % 60_000 };
    assert_eq!(packed(&page_of(relocation)), None, "a table of relocations");
    let late = page_of(|index| if index == 511 { u64::MAX } else { index as u64 });
    assert_eq!(packed(&late), None, "the last word spoils it");
}

#[test]
fn a_short_output_is_no_packed_page() {
    let page = page_of(|index| index as u64);
    for length in [0, 1, 8, 9, 1032] {
        assert_eq!(compress(&page, &mut vec![0; length]), None, "{length}");
    }
    assert_eq!(compress(&page, &mut [0; 1033]), Some(1033));
}

proptest! {
    #[test]
    fn any_input_expands_to_a_page_or_is_refused(mut input in proptest::collection::vec(any::<u8>(), 0..2100), head: u8, whole: bool) {
        let mut page = [0; PAGE_SIZE];
        let _ = decompress(&input, &mut page);
        if whole {
            let shape = Shape::unpack(head);
            let (size, words) = if shape.word == Word::Four { (4, 1024) } else { (8, 512) };
            input.resize(1 + size + words * shape.count as usize, 0xcc);
            input[0] = head;
            input[1..=size].fill(0);
            let fits = match shape.word { Word::Four => 2, Word::Eight => 4 } >= shape.count
                && shape.count > 0 && (shape.low + shape.count) as usize <= size;
            prop_assert_eq!(decompress(&input, &mut page).is_ok(), fits);
        }
    }

    #[test]
    fn what_is_packed_comes_back(base: u64, count in 1..=4u32, low in 0..8u32, seed: u64) {
        let mask = u64::MAX.checked_shr(64 - 8 * count).unwrap_or(0) << (8 * low);
        let page = page_of(|index| base ^ mixed(index).wrapping_mul(seed | 1) & mask);
        if let Some(bytes) = packed(&page) {
            let mut out = [0; PAGE_SIZE];
            decompress(&bytes, &mut out).unwrap();
            prop_assert!(out == page);
        }
    }
}

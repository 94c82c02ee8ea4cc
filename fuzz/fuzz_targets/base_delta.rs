//! Pages of numbers. Any input is refused or expanded as the table at the head of
//! `crates/devices/src/base_delta.rs` says, by an expansion of our own here that goes byte by byte.
//! Any page is refused, or packed into at most half a page so that it comes back.
#![no_main]

use folioswap_devices::{PAGE_SIZE, Page, base_delta};
use libfuzzer_sys::fuzz_target;

/// The page in a packed page, or `None` where the format allows no such bytes.
fn expand(input: &[u8]) -> Option<Page> {
    let (&head, rest) = input.split_first()?;
    let (count, low) = (usize::from(head & 15), usize::from(head >> 4 & 7));
    let word = if head & 0x80 == 0 { 4 } else { 8 };
    let is_shape = (1..=word / 2).contains(&count) && low + count <= word;
    if !is_shape || rest.len() != word + PAGE_SIZE / word * count {
        return None;
    }
    let (base, kept) = rest.split_at(word);
    if base[low..low + count].iter().any(|byte| *byte != 0) {
        return None;
    }
    Some(core::array::from_fn(|at| match (at % word).checked_sub(low) {
        Some(place) if place < count => kept[at / word * count + place],
        _ => base[at % word],
    }))
}

fuzz_target!(|data: &[u8]| {
    let mut page = [0xaa; PAGE_SIZE];
    let expanded = base_delta::decompress(data, &mut page).is_ok().then_some(page);
    assert!(expanded == expand(data));
    // The input makes a page of words that differ from the first in a few bytes.
    let Some((&shape, rest)) = data.split_first().filter(|(_, rest)| rest.len() >= 16) else {
        return;
    };
    let word = if shape & 1 == 0 { 4 } else { 8 };
    let (low, count) = (usize::from(shape >> 1 & 7) % word, usize::from(shape >> 4) % 6);
    let page: Page = core::array::from_fn(|at| {
        let (index, place) = (at / word, at % word);
        if (low..low + count).contains(&place) {
            // Another walk through the input for each place, so that few words repeat.
            rest[(index * (2 * place + 1) + index / rest.len()) % rest.len()]
        } else {
            rest[place]
        }
    });
    // Bytes behind what is packed stay as they are, and no more is asked for.
    let mut output = [0x55; base_delta::OUTPUT_MAX];
    if let Some(len) = base_delta::compress(&page, &mut output) {
        assert!(output[len..].iter().all(|byte| *byte == 0x55));
        let mut back = [0xaa; PAGE_SIZE];
        assert!(base_delta::decompress(&output[..len], &mut back).is_ok());
        assert!(back == page);
        assert!(expand(&output[..len]) == Some(page));
        assert!(base_delta::compress(&page, &mut output[..len - 1]).is_none());
    }
});

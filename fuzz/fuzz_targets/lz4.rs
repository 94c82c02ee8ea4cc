//! LZ4 of single pages. Any block is refused or decompressed, with the same result as another
//! implementation's. Any page is compressed so that both implementations decompress it. The
//! property tests in `crates/devices/src/lz4/mod.rs` are the short form.
#![no_main]

use folioswap_devices::{PAGE_SIZE, lz4};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut page = [0xaa; PAGE_SIZE];
    if lz4::decompress(data, &mut page).is_ok() {
        let mut theirs = [0x55; PAGE_SIZE];
        assert!(matches!(lz4_flex::block::decompress_into(data, &mut theirs), Ok(PAGE_SIZE)));
        assert!(page == theirs);
    }
    if data.is_empty() {
        return;
    }
    // The input is repeated, so that there are matches.
    let page = core::array::from_fn(|at| data[at % data.len()]);
    let (mut table, mut output) = (lz4::Table::new(), [0; lz4::OUTPUT_MAX]);
    let len = lz4::compress(&page, &mut output, &mut table, lz4::OUTPUT_MAX).unwrap();
    for decompress in [
        |block: &[u8], page: &mut [u8; PAGE_SIZE]| lz4::decompress(block, page).is_ok(),
        |block: &[u8], page: &mut [u8; PAGE_SIZE]| lz4_flex::block::decompress_into(block, page).is_ok(),
    ] {
        let mut back = [0x33; PAGE_SIZE];
        assert!(decompress(&output[..len], &mut back) && back == page);
    }
});

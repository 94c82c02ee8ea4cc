//! The first page of a file that a user names as a swap file is parsed or refused, without a panic.
//! An accepted page is exactly the one that `mkswap` would write. The property test in
//! `crates/devices/src/header.rs` is the short form.
#![no_main]

use folioswap_devices::header::Header;
use folioswap_devices::{PAGE_SIZE, signature};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut page = [0; PAGE_SIZE];
    let count = data.len().min(PAGE_SIZE);
    page[..count].copy_from_slice(&data[..count]);
    if let Ok(header) = Header::from_page(&page) {
        assert_eq!(header.to_page(), page);
    }
    // A right checksum lets the input reach the code behind the check.
    page[..8].copy_from_slice(b"folioswp");
    let sum = xxhash_rust::xxh3::xxh3_64(&page[..PAGE_SIZE - 8]);
    page[PAGE_SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
    if let Ok(header) = Header::from_page(&page) {
        assert_eq!(header.to_page(), page);
    }
    let _ = signature::name(data);
});

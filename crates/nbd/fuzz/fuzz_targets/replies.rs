//! Arbitrary bytes of a server once requests are under way: no panic, and no more memory than the
//! requests have.
#![no_main]

use folioswap_nbd::reply::{ReplyStyle, read_all};
use libfuzzer_sys::fuzz_target;

const REQUESTS: [(u64, u32); 4] = [(1 << 20, 64), (0, 4096), (u64::MAX - 8, 8), (0, 0)];

fuzz_target!(|bytes: &[u8]| {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured] {
        assert!(read_all(bytes, style, &REQUESTS) < 64 << 10);
    }
});

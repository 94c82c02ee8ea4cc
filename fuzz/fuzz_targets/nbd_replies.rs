//! Arbitrary bytes of a server once requests are under way: replies are read to the first error,
//! and take no more memory than the requests have.
#![no_main]

use folioswap_nbd::reply::{ReplyStyle, read_all};
use folioswap_nbd::wire::{ReplyHeader, SIMPLE_BYTES};
use libfuzzer_sys::fuzz_target;

const REQUESTS: [(u64, u32); 4] = [(1 << 20, 64), (0, 4096), (u64::MAX - 8, 8), (0, 0)];

fuzz_target!(|bytes: &[u8]| {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured] {
        assert!(read_all(bytes, style, &REQUESTS) < 64 << 10);
        assert_eq!(read_all(bytes, style, &[]), 0);
    }
    // A header names the cookie that stands in it.
    if let Some(head) = bytes.first_chunk::<SIMPLE_BYTES>()
        && let Ok(ReplyHeader::Simple { cookie, .. } | ReplyHeader::Chunk { cookie, .. }) =
            ReplyHeader::decode(head)
    {
        assert_eq!(cookie.to_be_bytes(), head[8..]);
    }
});

//! Arbitrary bytes of a server up to the agreement: in the end there is an error that can be shown,
//! or an agreement that is possible and that the bytes state.
#![no_main]

use folioswap_nbd::session::{REQUEST_MAX, negotiate_with};
use libfuzzer_sys::fuzz_target;

/// Longest text of an error: a server's word is cut off at 200 characters.
const TEXT_MAX: usize = 500;

fuzz_target!(|bytes: &[u8]| {
    match negotiate_with(bytes) {
        Ok(agreed) => {
            assert!(agreed.block.is_power_of_two() && agreed.block <= 64 << 10);
            assert!((agreed.block..=REQUEST_MAX).contains(&agreed.request_max));
            // Greeting, the answer about structured replies, the size, and the end of the answers.
            assert!(bytes.len() >= 18 + 20 + (20 + 12) + 20);
            assert!(bytes.windows(8).any(|window| window == agreed.size.to_be_bytes()));
            assert!(agreed.name.is_none_or(|name| name.len() <= 3 * bytes.len()));
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.chars().count() <= TEXT_MAX && !text.chars().any(char::is_control), "{text:?}");
        }
    }
});

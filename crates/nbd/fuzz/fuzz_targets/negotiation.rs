//! Arbitrary bytes of a server up to the agreement: no panic, and in the end an error or a possible
//! agreement.
#![no_main]

use folioswap_nbd::session::negotiate_with;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(agreed) = negotiate_with(bytes) {
        assert!(agreed.block.is_power_of_two() && agreed.request_max >= agreed.block);
    }
});

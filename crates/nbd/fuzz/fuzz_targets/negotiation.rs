//! What a server says until it is agreed what to do: no panic, no end without an error or an agreement that can be.
#![no_main]

use folioswap_nbd::session::negotiate_with;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(agreed) = negotiate_with(bytes) {
        assert!(agreed.block.is_power_of_two() && agreed.request_max >= agreed.block);
    }
});

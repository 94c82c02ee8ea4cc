//! Waiting for counters, which are published from time to time.

use folioswap::Swap;
use std::time::{Duration, Instant};

/// Waits until `what` holds, and panics with the swap's figures after `within`.
pub fn comes_true(swap: &Swap, within: Duration, what: impl Fn() -> bool) {
    let until = Instant::now() + within;
    while !what() {
        assert!(Instant::now() < until, "not yet: {}", swap.statistics());
        std::thread::sleep(Duration::from_millis(10));
    }
}

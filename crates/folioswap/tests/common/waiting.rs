//! Waiting for figures, which are published now and then.

use folioswap::Swap;
use std::time::{Duration, Instant};

/// Waits until something of a swap comes true, at most for so long; then it fails, and says how the swap is.
pub fn comes_true(swap: &Swap, within: Duration, what: impl Fn() -> bool) {
    let until = Instant::now() + within;
    while !what() {
        assert!(Instant::now() < until, "not yet: {}", swap.statistics());
        std::thread::sleep(Duration::from_millis(10));
    }
}

//! Waiting for what comes true.

use std::time::{Duration, Instant};

/// As long as anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so.
///
/// # Panics
/// When 60 s have passed before.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! Waiting for a condition.

use std::time::{Duration, Instant};

/// The longest time that any condition is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is_so` returns true, asking every 20 ms. `what` names the condition in the message.
///
/// # Panics
/// When 60 s have passed.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

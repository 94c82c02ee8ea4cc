//! The timing of work that is done every so often, and not at each round.

/// The time at which some work is due again. It is due at once at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    next_ns: u64,
}

impl Due {
    /// Work that is due at once.
    pub(crate) const fn at_once() -> Self {
        Due { next_ns: 0 }
    }

    /// Whether the work is due at `now_ns` (nanoseconds of CLOCK_MONOTONIC). If so it counts as
    /// done, and is due again `interval_ns` later.
    pub(crate) const fn take(&mut self, now_ns: u64, interval_ns: u64) -> bool {
        let is_due = now_ns >= self.next_ns;
        if is_due {
            self.next_ns = now_ns + interval_ns;
        }
        is_due
    }
}

#[cfg(test)]
mod tests;

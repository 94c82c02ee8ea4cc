//! What is done every so often, and not at each round.

/// When something is due again. At first it is due at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    next_ns: u64,
}

impl Due {
    /// Due at once.
    pub(crate) const fn at_once() -> Self {
        Due { next_ns: 0 }
    }

    /// Is it due at `now_ns` (nanoseconds of CLOCK_MONOTONIC)? Then it is taken for done, and due again `interval_ns` later.
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

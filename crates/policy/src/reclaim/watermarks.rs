//! The levels of a group's charge at which reclaim begins, stops, and makes faults wait.

/// The levels of the group's charge at which something happens, in bytes, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// From here on everything is registered, so that first touches can be counted and made to wait. As late as the fastest first touches allow
    /// (10 GB/s, 3 ms until they are noticed): until then each costs a tenth of what it costs the handler to serve it.
    pub engage: u64,
    /// Background eviction stops here.
    pub low: u64,
    /// Background eviction starts here.
    pub high: u64,
    /// From here on each fault waits for memory, for a while.
    pub limit: u64,
    /// From here on faults wait until there is memory.
    pub brink: u64,
}

/// What a limit may be exceeded by where nothing can be freed for a while, in bytes: half of what is promised (5 % and 16 MiB).
pub fn grace(limit: u64) -> u64 {
    limit / 40 + (8 << 20)
}

impl Watermarks {
    /// The levels for a limit.
    pub fn of(limit: u64) -> Self {
        let step = (limit / 256).clamp(512 << 10, 12 << 20).min(limit / 8);
        Watermarks {
            engage: limit - (limit / 8).clamp(32 << 20, 96 << 20).min(limit / 2),
            low: limit - 3 * step,
            high: limit - 2 * step,
            limit,
            brink: limit + grace(limit),
        }
    }
}

#[cfg(test)]
mod tests;

//! The levels of a group's charge at which reclaim begins, stops, and makes faults wait.

/// The levels of the group's charge, in bytes, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// From here on all memory is registered, so that first touches can be counted and made to
    /// wait. The level is as late as the fastest first touches allow (10 GB/s, 3 ms until they are
    /// noticed): until then each costs a tenth of the cost of being served by the handler.
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

/// Returns by how many bytes a limit may be exceeded where nothing can be freed for a while: half
/// of the promised bound (5 % and 16 MiB).
pub fn grace(limit: u64) -> u64 {
    (limit / 40).saturating_add(8 << 20)
}

impl Watermarks {
    /// Returns the levels for a limit.
    pub fn of(limit: u64) -> Self {
        let step = (limit / 256).clamp(512 << 10, 12 << 20).min(limit / 8);
        Watermarks {
            engage: limit - (limit / 8).clamp(32 << 20, 96 << 20).min(limit / 2),
            low: limit - 3 * step,
            high: limit - 2 * step,
            limit,
            brink: limit.saturating_add(grace(limit)),
        }
    }
}

#[cfg(test)]
mod tests;

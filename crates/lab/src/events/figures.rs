//! The figures of a simulation: times, and locks by name.

use serde::Serialize;

/// The times of a simulation, summed over all logical CPUs, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Times {
    /// Program time between requests.
    pub user: f64,
    /// System time on pages outside the allocator.
    pub pages: f64,
    /// System time in the allocator, without waiting.
    pub allocator: f64,
    /// System time spent waiting for locks.
    pub lock_wait: f64,
    /// Time that CPUs waited for another CPU to allocate or free first, as recorded. No system
    /// time.
    pub idle: f64,
    /// The highest clock: elapsed time.
    pub elapsed: f64,
}

impl Times {
    /// System time: pages, allocator and lock waits.
    pub fn system(&self) -> f64 {
        self.pages + self.allocator + self.lock_wait
    }
}

/// The figures of one lock, or of many.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LockWaits {
    /// The lock's name.
    pub name: String,
    /// Acquisitions, successful trylocks included.
    pub acquired: u64,
    /// Acquisitions that waited.
    pub waited: u64,
    /// Trylocks that found it taken.
    pub refused: u64,
    /// Time waited for it, seconds.
    pub wait_s: f64,
    /// Time held, seconds.
    pub held_s: f64,
    /// Longest queue.
    pub queue_max: u32,
}

/// The figures of a finished simulation.
#[derive(Debug, Clone, Serialize)]
pub struct Simulation {
    /// The times.
    pub times: Times,
    /// The locks by the time waited for them, hottest first: each list lock, the available list,
    /// the ten hottest clusters, and all clusters together.
    pub locks: Vec<LockWaits>,
}

//! What came of a replay, and why there was none.

use super::moments::Moments;
use super::prepare::Odd;
use crate::policies::PolicyName;
use folioswap_slots::{ConfigError, ORDERS, SwaponError, Violation};
use serde::Serialize;

/// The counts of a replay.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// The policy.
    pub policy: PolicyName,
    /// Real threads.
    pub threads: u32,
    /// Logical CPUs.
    pub cpus: u32,
    /// Operations of the trace.
    pub operations: u64,
    /// Wall time, ns.
    pub wall_ns: u64,
    /// Allocations that succeeded, per order (those of split folios are in order 0).
    pub allocated: [u64; ORDERS],
    /// Allocations that failed, per order.
    pub fallback: [u64; ORDERS],
    /// Clusters isolated and scanned, per order.
    pub clusters_scanned: [u64; ORDERS],
    /// Lock acquisitions, and how many of them found the lock taken: of clusters, lists, the
    /// available list, logical CPUs.
    pub locks: Option<[(u64, u64); 4]>,
    /// Size of each device, and its use at the end, pages.
    pub devices: Vec<(u64, u64)>,
    /// Slots that were ever written, of all devices.
    pub slots_ever_written: u64,
    /// Clusters discarded.
    pub clusters_discarded: u64,
    /// Corrections that were made to the trace.
    pub odd: Odd,
    /// The allocator over the course of the replay, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moments: Option<Moments>,
}

/// Why there was no replay, or the error that it found.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The allocator refuses the sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// A device cannot be switched on.
    #[error("device {number} cannot be switched on: {source}")]
    Swapon {
        /// The device's number, from 1 on.
        number: usize,
        /// The reason.
        source: SwaponError,
    },
    /// There is no device.
    #[error("there is no device to replay on")]
    NoDevice,
    /// Several threads are to replay, and moments to be taken.
    #[error("the allocator can be looked at over time only where one thread replays")]
    MomentsOfThreads,
    /// An invariant of the allocator does not hold after the replay, which is a mistake in
    /// folioswap.
    #[error("the allocator is not consistent after the replay ({0}); please report this")]
    Inconsistent(Violation),
}

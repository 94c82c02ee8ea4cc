//! A build under a memory limit: tasks grow, work and end, within a memory group whose cold folios
//! leave through the real allocator.
//!
//! A run is deterministic: the same parameters and seed give the same run on any host. One thread
//! drives the logical CPUs in turn.

mod folios;
mod memory_group;
mod parameters;
mod reclaim;
mod recorder;
mod tally;
mod workload;

pub use memory_group::{GroupError, MemoryGroup};
pub use parameters::{BadParameters, BuildParameters, Scale, Sizes};
pub use recorder::{NoRecorder, Recorder};
pub use tally::{OrderCounts, SwapDevice, Tally};
pub use workload::{BuildError, Outcome, Stopped, run_build};

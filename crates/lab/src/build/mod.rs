//! A build under a memory limit: tasks that grow, work and end, within a memory group whose cold folios leave through the real allocator.
//!
//! Deterministic: the same parameters and seed give the same run, on any host. Logical CPUs are driven in turn by one thread.

mod folios;
mod machine;
mod parameters;
mod recorder;
mod tally;
mod workload;

pub use machine::{GroupError, MemoryGroup};
pub use parameters::{BadParameters, BuildParameters, Scale, Sizes};
pub use recorder::{Nobody, Recorder};
pub use tally::{OrderCounts, SwapDevice, Tally};
pub use workload::{BuildError, Outcome, Stopped, run_build};

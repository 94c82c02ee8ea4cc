//! Recording of allocations and frees.

use folioswap_trace::{Details, Event};

/// Receives every event of slots while a build runs.
pub trait Recorder {
    /// Receives an event, after `steps` steps of the workload.
    fn record(&mut self, steps: u64, event: Event, details: Details);
}

/// Records nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {
    fn record(&mut self, _steps: u64, _event: Event, _details: Details) {}
}

//! Who is told of allocations and frees.

use folioswap_trace::Event;

/// Is told of every event of slots while a build runs.
pub trait Recorder {
    /// `steps` have been made so far.
    fn record(&mut self, steps: u64, event: Event);
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Recorder for Nobody {
    fn record(&mut self, _steps: u64, _event: Event) {}
}

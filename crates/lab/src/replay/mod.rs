//! Replays a trace through any policy, on any devices, with any number of real threads.

mod devices;
mod prepare;
mod run;
mod simulate;
mod stream;

pub use devices::{Device, DeviceError, Medium};
pub use prepare::{Odd, Prepared, Retention, TooManyClusters};
pub use run::{Replay, ReplayError, Replayed, replay, replay_with};
pub use simulate::{OnNodes, SimulateError, SimulatedReplay, SimulatedReplayed, simulate};
pub use stream::PrepareError;

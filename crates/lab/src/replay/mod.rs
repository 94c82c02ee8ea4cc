//! Replays a trace through any policy, on any devices, with any number of real threads.

mod devices;
mod moments;
mod prepare;
mod replayed;
mod run;
mod simulate;
mod stream;

pub use devices::{Device, DeviceError, Medium};
pub use moments::{Lists, Moment, Moments};
pub use prepare::{Odd, Prepared, Retention, TooManyClusters};
pub use replayed::{ReplayError, Replayed};
pub use run::{Replay, replay, replay_with};
pub use simulate::{OnNodes, SimulateError, SimulatedReplay, SimulatedReplayed, simulate};
pub use stream::PrepareError;

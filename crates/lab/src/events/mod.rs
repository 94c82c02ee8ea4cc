//! A simulation of many logical CPUs that run the real allocator, event by event.
//!
//! Each logical CPU is a coroutine with a clock of its own. It runs the allocator's own code up to
//! the next point at which another CPU could matter: a lock that is to be taken, tried or dropped
//! ([`folioswap_slots::Relax`]). There the CPU whose clock is lowest goes on. A lock that is held
//! has a queue; its next holder goes on when the lock is dropped, and the time between counts as
//! waiting. The code between two such points costs what [`Costs`] says of its steps. A trylock
//! fails when another CPU holds the lock at that time, as on a real machine.
//!
//! | To find | look in |
//! |---|---|
//! | clocks, queues, coroutines | `simulator.rs` |
//! | the locks | `locks.rs` |
//! | times, and locks by name | `figures.rs` |
//! | the costs, and the file that keeps them | `costs.rs` |
//! | how they are measured on the running machine | `calibrate.rs` |
//! | a trace driven through it | `../replay/simulate.rs` |

mod calibrate;
mod costs;
mod figures;
mod locks;
mod simulator;

pub use calibrate::{CalibrateError, calibrate};
pub use costs::{Costs, CostsError, CostsFile, PagesBy};
pub use figures::{LockWaits, Simulation, Times};
pub use simulator::{Deadlock, Simulated};
pub(crate) use simulator::{Spent, block, hold_store, simulate, spend, wake};

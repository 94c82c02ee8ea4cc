//! The lab: experiments with the slot allocator beside the published ones, and traces of
//! allocations.
//!
//! Everything drives the real allocator ([`folioswap_slots`]). The program above it is a model:
//! [`build`] is a compilation of many short tasks under a memory limit, [`swapout`] is tasks that
//! write memory once, folio by folio. `folioswap lab` runs the [`experiments`].
//!
//! | To find | look in |
//! |---|---|
//! | the experiments, each a report with published figures beside ours | `experiments/` |
//! | the model of a build | `build/workload.rs`, its numbers in `build/parameters.rs` |
//! | tasks that write folio by folio, with real memory and page table | `swapout/cpu.rs` |
//! | trace files; making and replaying them | `traces.rs`, `generate.rs`, `replay/` |
//! | many logical CPUs in simulated time, lock queues and costs | `events/` |
//! | traces as text | `text.rs` |
//! | fitting parameters to a trace | `fit.rs` |
//! | the running kernel under the same load | `peer/` |
//! | policies by name | `policies.rs` |
//! | the allocator in memory of its own, a device in RAM | `allocator.rs`, `ram_device.rs` |
//! | slots ever written, clusters discarded | `wear.rs` |
//! | zeroed memory; work on all processors | `memory.rs`, `parallel.rs` |

pub mod allocator;
pub mod build;
pub mod events;
pub mod experiments;
pub mod fit;
pub mod generate;
pub mod memory;
pub mod parallel;
pub mod peer;
pub mod policies;
pub mod ram_device;
pub mod replay;
pub mod swapout;
pub mod text;
pub mod traces;
pub mod wear;

//! The real source files under shuttle's scheduler. Every module of the crate is compiled into this
//! test with a `sync` whose types let the scheduler switch threads at each atomic operation and
//! lock. The layers below (slots, stores, devices) are one step each: they have models of their
//! own.
//!
//! A source file names the path of its unit tests, because a module with a path looks for its own
//! modules where a `mod.rs` would.
//!
//! `FOLIOSWAP_SHMEM_SCHEDULES=100000 cargo test --release -p folioswap-shmem --test shuttle` is the
//! long form. A failure prints the schedule, to be replayed with `shuttle::replay`.
#![allow(dead_code, unused_imports, missing_docs, unreachable_pub)]

#[path = "../../src/before.rs"]
mod before;
#[path = "../../src/counters.rs"]
mod counters;
#[path = "../../src/devices.rs"]
mod devices;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/folio.rs"]
mod folio;
#[path = "../../src/frames.rs"]
mod frames;
#[path = "../../src/lru.rs"]
mod lru;
#[path = "../../src/map/mod.rs"]
mod map;
#[path = "../../src/mapping.rs"]
mod mapping;
mod models;
#[path = "../../src/object/mod.rs"]
mod object;
#[path = "../../src/options.rs"]
mod options;
#[path = "../../src/outside.rs"]
mod outside;
#[path = "../../src/read_in.rs"]
mod read_in;
#[path = "../../src/reclaim.rs"]
mod reclaim;
#[path = "../../src/space.rs"]
mod space;
#[path = "../../src/swap.rs"]
mod swap;
#[path = "../../src/swap_list.rs"]
mod swap_list;
#[path = "../../src/swapin.rs"]
mod swapin;
#[path = "../../src/swapoff.rs"]
mod swapoff;
#[path = "../../src/swapout.rs"]
mod swapout;
mod sync;
#[path = "../../src/variant.rs"]
mod variant;
#[path = "../../src/word.rs"]
mod word;

pub use counters::Counts;
pub use devices::{DeviceFigures, DeviceIo, DeviceKind, Discard, SwapDevice};
pub use error::{CreateError, ShmemError};
pub use object::{Allocation, Lent, ObjectOf, ShmemObject};
pub use options::{HugeAdvice, HugePolicy, Options};
pub use space::{ShmemSpace, Statistics};
pub use swapoff::{SwapoffError, SwapoffReport};

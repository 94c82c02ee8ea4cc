//! The one door to atomics.
//!
//! Every module takes its atomic types from here, so that a model test can compile the same source files against
//! another set of types (`tests/loom` does so with loom's, `tests/shuttle` with types that yield to a scheduler).

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

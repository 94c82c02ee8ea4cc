//! The one door to atomics.
//!
//! Every module takes its atomic types from here, so that a model test can compile the same source
//! files against other types: `tests/loom` against loom's, `tests/shuttle` against those of
//! `folioswap_test_support::schedule`, whose operations are scheduling points.

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

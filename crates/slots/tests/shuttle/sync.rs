//! Stands in for `src/sync.rs`: each operation first lets shuttle choose the next thread. Plain
//! relaxed loads and stores are excepted, because the crate uses them under locks and for counters.

use folioswap_test_support::schedule::{self, AllButRelaxedAccesses as Points};

pub(crate) use schedule::{AtomicPtr, spin_loop};
pub(crate) use std::sync::atomic::{Ordering, fence};

pub(crate) type AtomicU8 = schedule::AtomicU8<Points>;
pub(crate) type AtomicU16 = schedule::AtomicU16<Points>;
pub(crate) type AtomicU32 = schedule::AtomicU32<Points>;
pub(crate) type AtomicU64 = schedule::AtomicU64<Points>;

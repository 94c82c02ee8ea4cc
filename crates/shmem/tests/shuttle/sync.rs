//! Stands in for `src/sync.rs`: each operation first lets shuttle choose the next thread, and a
//! thread that waits for a lock yields. Outside of a model, as in the crate's unit tests, which are
//! compiled into this binary too, all of it is as in `std`.

pub(crate) use folioswap_test_support::schedule::{
    AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    lock, read_lock, sleep, spin_loop, try_lock, write_lock, yield_now,
};
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Attempts at a folio's lock. Each is a scheduling point: two are as good as many.
pub(crate) const SPINS: u32 = 2;

//! The atomics.

use super::point;
use std::marker::PhantomData;
use std::sync::atomic::{self, Ordering};

/// Selects the operations at which another thread may run.
pub trait Points {
    /// Whether plain loads and stores with [`Ordering::Relaxed`] are among them. Read-modify-write
    /// operations always are.
    const RELAXED_ACCESSES: bool;
}

/// Every operation is a scheduling point.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryOperation;
impl Points for EveryOperation {
    const RELAXED_ACCESSES: bool = true;
}

/// Plain relaxed loads and stores are no scheduling points. For code that uses them only under a
/// lock, or for counters: the schedules then switch where it matters.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllButRelaxedAccesses;
impl Points for AllButRelaxedAccesses {
    const RELAXED_ACCESSES: bool = false;
}

/// Before a plain load or store.
fn access<P: Points>(order: Ordering) {
    if P::RELAXED_ACCESSES || order != Ordering::Relaxed {
        point();
    }
}

macro_rules! atomics {
    ($($name:ident: $value:ty;)*) => { $(
        /// In place of the type of this name in [`std::sync::atomic`].
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name<P = EveryOperation>(atomic::$name, PhantomData<P>);

        #[expect(missing_docs, reason = "as in std")]
        impl<P: Points> $name<P> {
            pub const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value), PhantomData)
            }
            pub fn load(&self, order: Ordering) -> $value {
                access::<P>(order);
                self.0.load(order)
            }
            pub fn store(&self, value: $value, order: Ordering) {
                access::<P>(order);
                self.0.store(value, order);
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }
            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(old, new, success, failure)
            }
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_and(value, order)
            }
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_or(value, order)
            }
        }
    )* };
}

macro_rules! numbers {
    ($($name:ident: $value:ty;)*) => { $(
        #[expect(missing_docs, reason = "as in std")]
        impl<P: Points> $name<P> {
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_add(value, order)
            }
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_sub(value, order)
            }
            pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_min(value, order)
            }
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_max(value, order)
            }
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                point();
                self.0.fetch_update(success, failure, update)
            }
        }
    )* };
}

atomics! {
    AtomicBool: bool;
    AtomicU8: u8;
    AtomicU16: u16;
    AtomicU32: u32;
    AtomicU64: u64;
}
numbers! {
    AtomicU8: u8;
    AtomicU16: u16;
    AtomicU32: u32;
    AtomicU64: u64;
}

/// In place of [`std::sync::atomic::AtomicPtr`]. Every operation is a scheduling point.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);

#[expect(missing_docs, reason = "as in std")]
impl<T> AtomicPtr<T> {
    pub const fn new(value: *mut T) -> Self {
        Self(atomic::AtomicPtr::new(value))
    }
    pub fn load(&self, order: Ordering) -> *mut T {
        point();
        self.0.load(order)
    }
    pub fn store(&self, value: *mut T, order: Ordering) {
        point();
        self.0.store(value, order);
    }
}

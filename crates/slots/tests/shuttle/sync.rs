//! Stands in for `src/sync.rs`: the same atomics, but each operation first lets the scheduler of the model choose another thread.
//! Layout and zero state are those of the real types, so the real code runs over real caller-supplied memory.

pub(crate) use std::sync::atomic::{Ordering, fence};

fn step() {
    if !crate::interruptions::step() {
        // A random point to switch at; the scheduler decides.
        shuttle::thread::yield_now();
    }
}

pub(crate) fn spin_loop() {
    step();
}

macro_rules! atomic {
    ($name:ident, $std:ident, $value:ty) => {
        #[repr(transparent)]
        pub(crate) struct $name(std::sync::atomic::$std);
        #[allow(dead_code)]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(std::sync::atomic::$std::new(value))
            }
            pub(crate) fn load(&self, order: Ordering) -> $value {
                if order != Ordering::Relaxed {
                    step();
                }
                self.0.load(order)
            }
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                if order != Ordering::Relaxed {
                    step();
                }
                self.0.store(value, order);
            }
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }
            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(old, new, success, failure)
            }
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_add(value, order)
            }
            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_sub(value, order)
            }
            pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_and(value, order)
            }
            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_or(value, order)
            }
            pub(crate) fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_min(value, order)
            }
        }
    };
}

atomic!(AtomicU8, AtomicU8, u8);
atomic!(AtomicU16, AtomicU16, u16);
atomic!(AtomicU32, AtomicU32, u32);
atomic!(AtomicU64, AtomicU64, u64);

#[repr(transparent)]
pub(crate) struct AtomicPtr<T>(std::sync::atomic::AtomicPtr<T>);
impl<T> AtomicPtr<T> {
    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        step();
        self.0.load(order)
    }
    pub(crate) fn store(&self, value: *mut T, order: Ordering) {
        step();
        self.0.store(value, order);
    }
}

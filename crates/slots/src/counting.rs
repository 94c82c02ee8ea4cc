//! Lock acquisitions, counted only by policies that ask for it (`LOCK_COUNTING`). Every lock but
//! the swap lock is taken through this module.

use crate::cpu::CpuGuard;
use crate::device::Device;
use crate::entry::{DeviceId, LogicalCpu};
use crate::lock::{Relax, SpinLock};
use crate::observe::LockName;
use crate::policy::{LockCounting, Policy};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};
use core::marker::PhantomData;

/// Acquisitions of one kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockStats {
    /// Acquisitions, successful trylocks included.
    pub acquired: u64,
    /// Attempts that found the lock taken: the thread waited, or a trylock gave up.
    pub contended: u64,
}

/// Acquisitions since [`init`](Slots::init), by kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllLockStats {
    /// Locks of clusters.
    pub cluster: LockStats,
    /// Locks of the devices' cluster lists.
    pub list: LockStats,
    /// The lock of the available list.
    pub available: LockStats,
    /// Local locks of logical CPUs.
    pub local: LockStats,
}

/// The kinds of locks that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockKind {
    Cluster,
    List,
    Available,
    Local,
}

fn kind_of(name: LockName) -> LockKind {
    match name {
        LockName::Cluster { .. } => LockKind::Cluster,
        LockName::Lists { .. } => LockKind::List,
        LockName::Available => LockKind::Available,
    }
}

/// A lock held for a scope, whose end an observer learns of.
pub(crate) struct Observed<'a, R: Relax> {
    lock: &'a SpinLock,
    name: LockName,
    relax: PhantomData<R>,
}

impl<R: Relax> Drop for Observed<'_, R> {
    #[inline]
    fn drop(&mut self) {
        R::before_unlock(self.name);
        self.lock.unlock();
    }
}

/// Counters of one kind, on cache lines of their own. Zeroed memory has counted nothing.
#[repr(C, align(128))]
struct Counter {
    acquired: AtomicU64,
    contended: AtomicU64,
}

/// Indexed by [`LockKind`].
#[repr(C)]
pub(crate) struct LockCounters([Counter; 4]);

impl LockCounters {
    fn stats(&self, kind: LockKind) -> LockStats {
        let counter = &self.0[kind as usize];
        LockStats {
            acquired: counter.acquired.load(Ordering::Relaxed),
            contended: counter.contended.load(Ordering::Relaxed),
        }
    }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Lock acquisitions so far; `None` unless the policy counts them.
    pub fn lock_stats(&self) -> Option<AllLockStats> {
        if P::LOCK_COUNTING == LockCounting::Off {
            return None;
        }
        let locks = &self.variant_shared().locks;
        Some(AllLockStats {
            cluster: locks.stats(LockKind::Cluster),
            list: locks.stats(LockKind::List),
            available: locks.stats(LockKind::Available),
            local: locks.stats(LockKind::Local),
        })
    }

    /// Counts one acquisition.
    fn count_lock(&self, kind: LockKind, contended: u64) {
        let counter = &self.variant_shared().locks.0[kind as usize];
        counter.acquired.fetch_add(1, Ordering::Relaxed);
        counter.contended.fetch_add(contended, Ordering::Relaxed);
    }

    /// Takes `lock`, which is known to observers as `name`.
    #[inline]
    pub(crate) fn lock(&self, lock: &SpinLock, name: LockName) {
        P::Relax::before_lock(name);
        self.lock_unobserved(lock, kind_of(name));
        P::Relax::locked(name);
    }

    #[inline]
    fn lock_unobserved(&self, lock: &SpinLock, kind: LockKind) {
        if P::LOCK_COUNTING == LockCounting::Off {
            return lock.lock::<P::Relax>();
        }
        let contended = !lock.try_lock();
        if contended {
            lock.lock::<P::Relax>();
        }
        self.count_lock(kind, u64::from(contended));
    }

    /// Takes `lock` unless it is taken; says whether it did.
    #[inline]
    pub(crate) fn try_lock(&self, lock: &SpinLock, name: LockName) -> bool {
        P::Relax::before_try(name);
        let taken = lock.try_lock();
        if P::LOCK_COUNTING == LockCounting::On {
            let counter = &self.variant_shared().locks.0[kind_of(name) as usize];
            let which = if taken { &counter.acquired } else { &counter.contended };
            which.fetch_add(1, Ordering::Relaxed);
        }
        if taken {
            P::Relax::locked(name);
        }
        taken
    }

    /// Holds the list lock of device `id` for a scope.
    #[inline]
    pub(crate) fn hold_lists<'a>(&self, id: DeviceId, device: &'a Device) -> Observed<'a, P::Relax> {
        let name = LockName::Lists { device: id.index() as u32 };
        self.lock(&device.lists.lock, name);
        Observed { lock: &device.lists.lock, name, relax: PhantomData }
    }

    /// Holds the available-list lock for a scope.
    #[inline]
    pub(crate) fn hold_available(&self) -> Observed<'_, P::Relax> {
        let lock = &self.header().available.lock;
        self.lock(lock, LockName::Available);
        Observed { lock, name: LockName::Available, relax: PhantomData }
    }

    /// Holds the local lock of a logical CPU for a scope.
    #[inline]
    pub(crate) fn lock_cpu(&self, cpu: LogicalCpu) -> CpuGuard<'_> {
        let state = self.cpu(cpu);
        self.lock_unobserved(state.local_lock(), LockKind::Local);
        CpuGuard::new(state)
    }
}

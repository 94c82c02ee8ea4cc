//! `run --trace`: the ring into which this process's allocations and frees are recorded.

use crate::engine::Engine;
use crate::kernel::{sys, window};
use core::ptr::NonNull;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_policy::memory::Memory;
use folioswap_trace::{Moment, Ring, Tracer};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::sched_getcpu;
use rustix::time::{ClockId, clock_gettime};

/// The time, read through the vDSO: no system call.
fn moment() -> Moment {
    let now = clock_gettime(ClockId::Monotonic);
    Moment { ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, cpu: sched_getcpu() as u32 }
}

/// The ring into which this process's allocations and frees are recorded, and the tracer that does
/// so; null without `--trace`.
#[repr(C)]
pub struct Recording {
    pub(crate) ring: AtomicPtr<Ring>,
    pub(crate) tracer: AtomicPtr<Tracer>,
}

impl Engine {
    /// Records from now on into the ring behind this descriptor, and closes the descriptor. For the
    /// handler, before it serves anything: in a forked child the new ring takes the place of the
    /// parent's.
    pub(crate) fn trace_into(&self, descriptor: i32) -> Result<(), Errno> {
        let before = self.recording.ring.load(Acquire);
        let bytes = Ring::<{ folioswap_trace::RING_RECORDS }>::BYTES;
        let (at, flags) = if before.is_null() {
            (window::place(bytes), MapFlags::SHARED)
        } else {
            (before.cast(), MapFlags::SHARED | MapFlags::FIXED)
        };
        // SAFETY: a new mapping of the descriptor, which the supervisor sized to the ring's layout
        // and sealed; or a mapping over the parent's ring, to which nothing refers while the space
        // has no tracer.
        let ring = unsafe {
            rustix::mm::mmap(
                at,
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                BorrowedFd::borrow_raw(descriptor),
                0,
            )
        }?;
        sys::close_range(descriptor as u32, descriptor as u32);
        self.recording.ring.store(ring.cast(), Release);
        let mut tracer = self.recording.tracer.load(Relaxed);
        if tracer.is_null() {
            let place = self.arena.take(size_of::<Tracer>()).ok_or(Errno::NOMEM)?.cast::<Tracer>();
            // SAFETY: fresh memory that is never given back; the ring stays mapped as long as the
            // process lives.
            unsafe { place.write(Tracer::new(&*ring.cast(), moment)) };
            tracer = place.as_ptr();
            self.recording.tracer.store(tracer, Relaxed);
        }
        self.space.set_tracer(NonNull::new(tracer));
        Ok(())
    }
}

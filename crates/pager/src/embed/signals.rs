//! Faults that come as signals (UFFD_FEATURE_SIGBUS): each is served in the thread that faults, by
//! the same code as in the handler thread, one at a time under the handler's lock. The handler
//! thread of such an engine reads events alone.
//!
//! A serving thread runs in a signal handler with all signals blocked. It touches no managed
//! memory, and the locks that it takes are never held by a thread that does: so it waits for no
//! thread that waits for it. The descriptors that it uses must be open in its table under the
//! numbers of the pager threads'; it makes no asynchronous reads, whose ring belongs to one thread.

use crate::engine::embedded::Embedded;
use crate::engine::{CreateError, Engine};
use crate::fault::buffers::Buffers;
use crate::fault::handler::Handler;
use crate::kernel::sys;
use crate::kernel::uffd::Access;
use crate::units::{PAGE, PageAddr};
use core::mem::size_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;

/// Time between two checks whether the engine is stopped.
const LOOK_NS: i64 = 500_000_000;

impl Embedded {
    /// Whether faults come as signals.
    pub(crate) fn serves_signals(&self) -> bool {
        !self.served_in_place.load(Relaxed).is_null()
    }
}

impl Engine {
    /// Prepares for [`Engine::serve_in_place`]. Called once, after [`Engine::embed`] and before the
    /// threads are started, where the userfaultfd was opened for
    /// [`crate::kernel::uffd::Faults::Signals`]; the handler thread then runs
    /// [`Engine::serve_events`] in place of [`Engine::serve_faults`].
    ///
    /// # Errors
    /// [`CreateError::NoMemory`].
    pub fn prepare_for_signals(&'static self) -> Result<(), CreateError> {
        let buffers = Buffers::of(self).ok_or(CreateError::NoMemory)?;
        let place = self.arena.own_mapping(size_of::<Handler>()).ok_or(CreateError::NoMemory)?;
        let mut handler = Handler::new(self, buffers);
        handler.reads.give_up_ring();
        let place = place.as_ptr().cast::<Handler>();
        // SAFETY: fresh memory of the right size, page-aligned, which stays as long as the engine.
        unsafe { place.write(handler) };
        self.embedded.served_in_place.store(place.cast(), Release);
        Ok(())
    }

    /// Does the handler thread's work there: reads events until the engine is stopped.
    ///
    /// # Safety
    /// As for [`Engine::serve_faults`], after [`Engine::prepare_for_signals`].
    pub unsafe fn serve_events(&'static self) {
        self.threads.handler.store(sys::gettid(), Release);
        sys::raise_priority();
        while !self.embedded.is_stopping() {
            self.wait_for_event();
            self.make_way_for_evictor();
            let _one_at_a_time = self.locks.serve.lock();
            // SAFETY: the handler was prepared, and is used under the lock alone.
            unsafe { &mut *self.embedded.served_in_place.load(Acquire).cast::<Handler>() }.read_messages();
        }
    }

    fn wait_for_event(&self) {
        // SAFETY: both stay open for the life of this thread.
        let (events, control) = unsafe {
            (
                BorrowedFd::borrow_raw(self.userfault().0),
                BorrowedFd::borrow_raw(self.descriptors.control.load(Relaxed)),
            )
        };
        let mut polled = [
            PollFd::from_borrowed_fd(events, PollFlags::IN),
            PollFd::from_borrowed_fd(control, PollFlags::RDHUP),
        ];
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
        let ended = polled[1].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR);
        if ended && !self.embedded.is_stopping() {
            sys::kill_self();
        }
    }

    /// Serves a fault of the calling thread; afterwards the thread faults no more, or anew. At the
    /// limit it waits for memory, as long as it takes.
    ///
    /// # Safety
    /// Must be called in the handler of a SIGBUS that a touch of this engine's managed memory
    /// raised, with all signals blocked, after [`Engine::prepare_for_signals`]; the calling thread
    /// must hold no lock of the engine.
    pub unsafe fn serve_in_place(&'static self, address: usize, access: Access) {
        let begun = sys::now_ns();
        // The thread's number only says whether it may wait, and it is neither the evictor nor one
        // that forks, so any number will do. (To ask costs a system call.)
        let page = PageAddr::containing(address);
        loop {
            let _one_at_a_time = self.locks.serve.lock();
            // SAFETY: the handler was prepared, and is used under the lock alone.
            let handler = unsafe { &mut *self.embedded.served_in_place.load(Acquire).cast::<Handler>() };
            let fault = handler.fault_read_now(page, access, u32::MAX, begun);
            if self.is_at_limit() && handler.needs_memory(&fault) && handler.wait_for_memory(fault.thread) {
                // Other threads may have faults that need no memory.
                continue;
            }
            handler.serve(fault);
            break;
        }
        let took = sys::now_ns() - begun;
        self.embedded.latency.add(took);
        self.figures().add(folioswap_group::counters::Counter::FaultNanoseconds, took);
    }
}

const _: () = assert!(align_of::<Handler>() <= PAGE);

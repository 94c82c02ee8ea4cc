//! Buffers in which pages are encrypted on their way to a device: the pages themselves stay as they
//! are, since a fault may want one before it is written.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use folioswap_devices::{PAGE_SIZE, Page};

/// Pages of a buffer: a disk's throughput hardly grows with longer writes.
pub(crate) const BOUNCE_PAGES: usize = 64;
/// Threads that write at a time without waiting for each other: evictor and handler.
const BUFFERS: usize = 2;

struct Buffer {
    is_taken: AtomicBool,
    pages: NonNull<[Page; BOUNCE_PAGES]>,
}

/// The buffers of one process; a forked child goes on with its copy, all of them free.
pub(crate) struct Bounce([Buffer; BUFFERS]);

// SAFETY: a buffer's pages belong to the thread that has set its bit.
unsafe impl Sync for Bounce {}
// SAFETY: the pointers refer to memory that lives for ever.
unsafe impl Send for Bounce {}

/// The right to use a buffer. Dropping it gives the buffer back.
pub(crate) struct Taken<'a>(&'a Buffer);

impl Bounce {
    /// Bytes of memory that it needs; only used memory is touched.
    pub(crate) const BYTES: usize = BUFFERS * BOUNCE_PAGES * PAGE_SIZE;

    /// Buffers in this memory.
    ///
    /// # Safety
    /// `memory` must be [`Bounce::BYTES`] of zeroed memory, page aligned, for its use alone, for
    /// ever.
    pub(crate) unsafe fn new(memory: NonNull<u8>) -> Self {
        let first = memory.cast::<[Page; BOUNCE_PAGES]>();
        Bounce(core::array::from_fn(|index| Buffer {
            is_taken: AtomicBool::new(false),
            // SAFETY: the memory has room for so many buffers.
            pages: unsafe { first.add(index) },
        }))
    }

    /// Takes a buffer; where all are in use it lets their users run.
    pub(crate) fn take(&self) -> Taken<'_> {
        loop {
            for buffer in &self.0 {
                if buffer.is_taken.compare_exchange(false, true, Acquire, Acquire).is_ok() {
                    return Taken(buffer);
                }
            }
            rustix::thread::sched_yield();
        }
    }
}

impl Taken<'_> {
    /// The buffer's pages.
    pub(crate) fn pages(&mut self) -> &mut [Page; BOUNCE_PAGES] {
        // SAFETY: this is the buffer's only user, until it is dropped; any bytes are pages.
        unsafe { &mut *self.0.pages.as_ptr() }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Release);
    }
}

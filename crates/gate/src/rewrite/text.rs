//! Reading and writing text through /proc/self/mem: no page is ever writable and executable, and
//! no address that is gone faults.

use crate::kernel::{File, call};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use linux_raw_sys::general as raw;

const REGISTER_SYNC_CORE: u64 = 1 << 6;
const SYNC_CORE: u64 = 1 << 5;

/// The process's own memory as a file, open for the time of one rewriting.
pub(super) struct Memory(File);

impl Memory {
    /// None where /proc is not mounted, no descriptor is free, or a filter forbids it.
    pub(super) fn open() -> Option<Memory> {
        // `self` has no memory once the first thread has ended.
        File::open(c"/proc/thread-self/mem", raw::O_RDWR).ok().map(Memory)
    }

    /// Reads what is mapped from `address` on, without a gap; returns the bytes.
    pub(super) fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let arguments = [self.0.descriptor(), to.as_mut_ptr() as u64, to.len() as u64, address, 0, 0];
        // SAFETY: the kernel writes at most the slice's bytes.
        unsafe { call(raw::__NR_pread64, arguments) }.unwrap_or(0) as usize
    }

    /// Writes bytes, whatever the protection. Returns whether all are written.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let arguments = [self.0.descriptor(), bytes.as_ptr() as u64, bytes.len() as u64, address, 0, 0];
        // SAFETY: callers write a trampoline's own page, or a site whose bytes they have compared
        // while no mapping may change, and in an order that suits threads which execute them.
        unsafe { call(raw::__NR_pwrite64, arguments) }.is_ok_and(|written| written == bytes.len() as u64)
    }
}

/// 1 once the process may have a second thread that executes the program's text.
static SEVERAL: AtomicU32 = AtomicU32::new(0);
/// 1 where the kernel serialises the processors of this process on demand.
static REGISTERED: AtomicU32 = AtomicU32::new(0);

/// From now on there are other threads, or soon will be.
pub(crate) fn others_begin() {
    SEVERAL.store(1, Relaxed);
}

/// Asks for [`serialise_other_processors`], once there are several threads. The first call waits
/// for all processors, which takes the kernel some milliseconds where the pager has the memory too:
/// it belongs where no lock is held, and no other thread waits. The only thread of a process spares
/// itself that, since the return from a signal's handler serialises.
pub(super) fn prepare_to_serialise() {
    if SEVERAL.load(Relaxed) != 0 && REGISTERED.load(Relaxed) == 0 && membarrier(REGISTER_SYNC_CORE) {
        REGISTERED.store(1, Relaxed);
    }
}

/// Makes every processor that runs a thread of this process fetch its instructions anew. Where the
/// kernel cannot, the order of the two writes is all there is.
pub(super) fn serialise_other_processors() {
    if REGISTERED.load(Relaxed) != 0 {
        membarrier(SYNC_CORE);
    }
}

fn membarrier(command: u64) -> bool {
    // SAFETY: no arguments that lead anywhere.
    unsafe { call(raw::__NR_membarrier, [command, 0, 0, 0, 0, 0]) }.is_ok()
}

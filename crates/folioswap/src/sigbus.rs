//! Faults that come as SIGBUS: finding the engine that serves one, and passing on other signals.
//!
//! The process has one handler, which is installed with the first swap that needs it and never
//! removed. A signal that is not a fault in a region goes to the action that was installed before:
//! a handler is called as the kernel would call it, and the default action ends the process.

mod access;

use access::access_of;
use folioswap_devices::PAGE_SIZE;
use folioswap_pager::engine::Engine;
use folioswap_pager::kernel::window::place;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::mem::{transmute, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Regions of one [`Chunk`].
const ENTRIES_PER_CHUNK: usize = 256;

/// The address range of a region, and the engine that serves it. Written under [`WRITING`]; read by
/// signal handlers, without a lock. A reader that finds an odd version, or another version after
/// the read, discards the read.
#[derive(Debug)]
struct Entry {
    version: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    engine: AtomicPtr<Engine>,
    /// The process of the region. A forked child has copies of its parent's entries, but not the
    /// regions: other mappings may lie at those addresses.
    process: AtomicU32,
}

/// Places, and where there are more. Never freed.
struct Chunk {
    entries: [Entry; ENTRIES_PER_CHUNK],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        Chunk { entries: [const { Entry::free() }; ENTRIES_PER_CHUNK], next: AtomicPtr::new(null_mut()) }
    }
}

static REGIONS: Chunk = Chunk::new();
static WRITING: Mutex<()> = Mutex::new(());

impl Entry {
    const fn free() -> Self {
        Entry {
            version: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            engine: AtomicPtr::new(null_mut()),
            process: AtomicU32::new(0),
        }
    }

    fn set(&self, start: usize, end: usize, engine: *mut Engine) {
        self.version.fetch_add(1, SeqCst);
        self.start.store(start, SeqCst);
        self.end.store(end, SeqCst);
        self.engine.store(engine, SeqCst);
        self.process.store(std::process::id(), SeqCst);
        self.version.fetch_add(1, SeqCst);
    }

    fn engine_of(&self, address: usize) -> Option<&'static Engine> {
        let version = self.version.load(SeqCst);
        if self.start.load(SeqCst) > address || self.end.load(SeqCst) <= address {
            return None;
        }
        let engine = self.engine.load(SeqCst);
        if self.process.load(SeqCst) != this_process() {
            return None;
        }
        if !version.is_multiple_of(2) || self.version.load(SeqCst) != version {
            return None;
        }
        // SAFETY: the region at this address exists, or no one may touch the address; the engine
        // lives as long as the region.
        unsafe { engine.as_ref() }
    }
}

/// The process that made the last registration, in a page that is wiped on fork. Asking the kernel
/// at each fault would cost a tenth of a microsecond. Null where the page cannot be had.
static OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// Returns the calling process as far as registrations are concerned; 0 in a forked child that has
/// made none.
fn this_process() -> u32 {
    // SAFETY: never unmapped.
    match unsafe { OWNER.load(Acquire).as_ref() } {
        Some(owner) => owner.load(Relaxed),
        // The system call takes no lock, so it is fit for a signal handler.
        None => std::process::id(),
    }
}

/// Records that the calling process has registrations. The caller holds [`WRITING`].
fn claim_for_this_process() {
    let mut owner = OWNER.load(Acquire);
    if owner.is_null() {
        // SAFETY: a new page, which nothing else uses.
        unsafe {
            let flags = MapFlags::PRIVATE;
            let Ok(page) =
                mmap_anonymous(place(PAGE_SIZE), PAGE_SIZE, ProtFlags::READ | ProtFlags::WRITE, flags)
            else {
                return;
            };
            if madvise(page, PAGE_SIZE, Advice::LinuxWipeOnFork).is_err() {
                let _ = munmap(page, PAGE_SIZE);
                return;
            }
            owner = page.cast();
        }
        OWNER.store(owner, Release);
    }
    // SAFETY: never unmapped.
    unsafe { &*owner }.store(std::process::id(), Relaxed);
}

/// Returns all chunks.
fn chunks() -> impl Iterator<Item = &'static Chunk> {
    // SAFETY: chunks are never freed.
    std::iter::successors(Some(&REGIONS), |chunk| unsafe { chunk.next.load(Acquire).as_ref() })
}

/// Makes faults in a range an engine's, until dropped. The range must be unmapped before the drop,
/// because a fault just before the unmapping is still the engine's.
#[derive(Debug)]
pub(crate) struct Registration(&'static Entry);

impl Registration {
    /// Registers `start..end`.
    pub(crate) fn new(start: usize, end: usize, engine: &'static Engine) -> Self {
        let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let free = chunks().flat_map(|chunk| &chunk.entries).find(|entry| entry.end.load(Relaxed) == 0);
        let entry = free.unwrap_or_else(|| {
            let chunk: &'static Chunk = Box::leak(Box::new(Chunk::new()));
            let last = chunks().last().unwrap_or(&REGIONS);
            last.next.store(std::ptr::from_ref(chunk).cast_mut(), Release);
            &chunk.entries[0]
        });
        claim_for_this_process();
        entry.set(start, end, std::ptr::from_ref(engine).cast_mut());
        Registration(entry)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.0.process.load(SeqCst) != std::process::id() {
            // In a forked child's copy: no handler looks at it, and the lock may have been held at
            // the fork.
            return;
        }
        let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.set(0, 0, null_mut());
    }
}

/// The action that was installed before the engine's.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once in a process.
pub(crate) fn install() {
    let mut installs = false;
    BEFORE.get_or_init(|| {
        installs = true;
        // SAFETY: all zero is a valid value; the call only asks.
        unsafe {
            let mut before: libc::sigaction = zeroed();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before);
            before
        }
    });
    if !installs {
        return;
    }
    // SAFETY: the handler reads only statics, and `BEFORE` is set.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        // The handler runs on the thread's own stack, because alternate stacks are too small to
        // serve a fault on. All signals are blocked meanwhile.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

/// The code of a SIGBUS for a nonexistent physical address (siginfo), which userfaultfd raises.
const BUS_ADRERR: i32 = 2;

extern "C" fn on_sigbus(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's arguments of a SIGBUS; the C library's errno of this thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let address = (*information).si_addr() as usize;
        let engine = if (*information).si_code == BUS_ADRERR {
            chunks().flat_map(|chunk| &chunk.entries).find_map(|entry| entry.engine_of(address))
        } else {
            None
        };
        match engine {
            Some(engine) => {
                engine.serve_in_place(address, access_of(&*context.cast()));
            }
            None => pass_on(signal, information, context),
        }
        *errno = before;
    }
}

/// Does as the process would have done without the engine's handler.
unsafe fn pass_on(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // `BEFORE` is set before the handler is installed, so it is always found.
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: as the kernel does: the signal mask of the thread and of the action, then the
    // action's handler with the kernel's arguments.
    unsafe {
        if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
            // The instruction faults again, and the default action follows. A SIGBUS sent by a
            // process is raised once more. A fault cannot be ignored.
            let sent = (*information).si_code <= 0;
            if sent && before.sa_sigaction == libc::SIG_IGN {
                return;
            }
            let mut default: libc::sigaction = zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, null_mut());
            if sent {
                libc::raise(signal);
            }
            return;
        }
        let mut mask = (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        for number in 1..=64 {
            if libc::sigismember(&raw const before.sa_mask, number) == 1 {
                libc::sigaddset(&raw mut mask, number);
            }
        }
        if before.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, null_mut());
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                transmute(before.sa_sigaction);
            handler(signal, information, context);
        } else {
            let handler: extern "C" fn(i32) = transmute(before.sa_sigaction);
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests;

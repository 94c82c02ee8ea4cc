//! Faults that come as SIGBUS: whose they are, and who else wants the signal.
//!
//! One handler for the process, installed with the first swap that wants it and never taken away. What is not the fault of a region is passed on
//! to the action that was installed before: a handler is called as the kernel would, the default action ends the process.

use folioswap_pager::engine::Engine;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::mem::{transmute, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Regions of one [`Chunk`].
const PLACES: usize = 256;

/// Where a region lies and who serves it. Written under [`WRITING`]; read by signal handlers, without a lock: who reads an odd number, or another
/// one afterwards, has read nothing.
#[derive(Debug)]
struct Place {
    version: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    engine: AtomicPtr<Engine>,
    /// Whose region it is. A forked child has places of its parent's, whose regions it does not have: something else may lie there.
    process: AtomicU32,
}

/// Places, and where there are more. Never freed.
struct Chunk {
    places: [Place; PLACES],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        Chunk { places: [const { Place::free() }; PLACES], next: AtomicPtr::new(null_mut()) }
    }
}

static REGIONS: Chunk = Chunk::new();
static WRITING: Mutex<()> = Mutex::new(());

impl Place {
    const fn free() -> Self {
        Place {
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
        // SAFETY: the region at this address is there, or nobody may touch it; its engine lives as long as it.
        unsafe { engine.as_ref() }
    }
}

/// The process that made the last registration, in a page that a forked child finds empty: to ask the system at each fault would cost a tenth of a
/// microsecond. Null where there is no such page.
static OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// The calling process as far as registrations are concerned; 0 in a forked child that has none of its own.
fn this_process() -> u32 {
    // SAFETY: never unmapped.
    match unsafe { OWNER.load(Acquire).as_ref() } {
        Some(owner) => owner.load(Relaxed),
        // A system call that takes no lock: fit for a signal handler.
        None => std::process::id(),
    }
}

/// The calling process has registrations from now on. Under [`WRITING`].
fn own() {
    let mut owner = OWNER.load(Acquire);
    if owner.is_null() {
        // SAFETY: a page of our own.
        unsafe {
            let flags = MapFlags::PRIVATE;
            let Ok(page) = mmap_anonymous(null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, flags) else {
                return;
            };
            if madvise(page, 4096, Advice::LinuxWipeOnFork).is_err() {
                let _ = munmap(page, 4096);
                return;
            }
            owner = page.cast();
        }
        OWNER.store(owner, Release);
    }
    // SAFETY: never unmapped.
    unsafe { &*owner }.store(std::process::id(), Relaxed);
}

/// All chunks.
fn chunks() -> impl Iterator<Item = &'static Chunk> {
    // SAFETY: chunks are never freed.
    std::iter::successors(Some(&REGIONS), |chunk| unsafe { chunk.next.load(Acquire).as_ref() })
}

/// Faults in a range are an engine's, until this is dropped: after the range was unmapped, since a fault just before is still the engine's.
#[derive(Debug)]
pub(crate) struct Registration(&'static Place);

impl Registration {
    /// For `start..end`.
    pub(crate) fn new(start: usize, end: usize, engine: &'static Engine) -> Self {
        let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let free = chunks().flat_map(|chunk| &chunk.places).find(|place| place.end.load(Relaxed) == 0);
        let place = free.unwrap_or_else(|| {
            let chunk: &'static Chunk = Box::leak(Box::new(Chunk::new()));
            let last = chunks().last().unwrap_or(&REGIONS);
            last.next.store(std::ptr::from_ref(chunk).cast_mut(), Release);
            &chunk.places[0]
        });
        own();
        place.set(start, end, std::ptr::from_ref(engine).cast_mut());
        Registration(place)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.0.process.load(SeqCst) != std::process::id() {
            // The copy of a forked child: nobody looks at it, and the lock may have been held when it was made.
            return;
        }
        let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.set(0, 0, null_mut());
    }
}

/// The action that was there before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once in a process.
pub(crate) fn install() {
    let mut installs = false;
    BEFORE.get_or_init(|| {
        installs = true;
        // SAFETY: all-zero is a value of the C library's; asks only.
        unsafe {
            let mut before: libc::sigaction = zeroed();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before);
            before
        }
    });
    if !installs {
        return;
    }
    // SAFETY: what the handler reads is there.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        // On the thread's own stack: alternate ones are too small for what serves a fault. All signals wait.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

/// Codes of a SIGBUS from the kernel about an address (siginfo).
const BUS_ADRERR: i32 = 2;

extern "C" fn on_sigbus(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's arguments of a SIGBUS; the C library's errno of this thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let address = (*information).si_addr() as usize;
        let engine = if (*information).si_code == BUS_ADRERR {
            chunks().flat_map(|chunk| &chunk.places).find_map(|place| place.engine_of(address))
        } else {
            None
        };
        match engine {
            Some(engine) => {
                let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
                let error_code = registers[libc::REG_ERR as usize] as u64;
                engine.serve_in_place(address, Engine::access_of(error_code));
            }
            None => pass_on(signal, information, context),
        }
        *errno = before;
    }
}

/// Does what would have been done without us.
unsafe fn pass_on(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // It is there before the handler is installed.
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: as the kernel would: the thread's own signal mask and that of the action; then its handler with the kernel's arguments.
    unsafe {
        if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
            // The instruction faults again, and the default action follows; a SIGBUS that somebody sent is raised once more. A fault cannot be
            // ignored.
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
mod tests {
    use super::*;

    #[test]
    fn many_regions_are_found_and_forgotten() {
        let engine = Engine::create_embedded().expect("memory");
        let found =
            |address| chunks().flat_map(|chunk| &chunk.places).find_map(|place| place.engine_of(address));
        let start = |number: usize| (number + 1) << 30;
        let range = |number| start(number)..start(number) + 4096;
        let add = |number| Registration::new(range(number).start, range(number).end, engine);
        let all: Vec<_> = (0..3 * PLACES).map(add).collect();
        for (number, registration) in all.into_iter().enumerate() {
            assert!(found(start(number)).is_some() && found(start(number) + 4095).is_some());
            assert!(found(start(number) + 4096).is_none() && found(start(number) - 1).is_none());
            drop(registration);
            assert!(found(start(number)).is_none());
        }
        let used = chunks().count();
        drop(add(1));
        assert_eq!(chunks().count(), used, "places are used again");
    }
}

//! The gate of this process: what it asks, and how it is put before the C library's calls.

use super::Calls;
use folioswap_gate::hazard::{Announcer, PAGE};
use folioswap_gate::hooks::{HELD_AT_ONCE, MANAGED, Managed, Run};
use folioswap_gate::inside::{self, Refusal};
use folioswap_gate::pins::HAZARDS;
use folioswap_pager::engine::holds::By;
use folioswap_pager::kernel::futex::{self, Sharing};
use folioswap_pager::kernel::ranges::{Range, Ranges};
use folioswap_pager::kernel::thread::SignalsBlocked;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ffi::{CStr, c_int, c_void};
use std::ops;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, PoisonError};

/// The gate, as engines ask it.
static CALLS: Calls = Calls { announce, for_held, withdraw };

/// All regions whose engines ask the gate. Changed under [`CHANGING`], with signals blocked: a
/// handler's calls look into the set.
static REGIONS: Ranges = Ranges::empty();
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// A byte that is 1 in the process that has the regions, and 0 in those that are forked from it.
static IS_OURS: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());

/// What a call may hold at once: an eighth of the least limit that a swap has had.
static HELD_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

/// One engine at a time announces as the one, and as the other: 1 or 2 while somebody does (a
/// futex), 2 where others wait.
static ANNOUNCES: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
/// A wait ends by itself: the word may be forgotten in a forked child.
const LOOK_NS: u64 = 10_000_000;

fn announcer(by: By) -> Announcer {
    match by {
        By::Mover => Announcer::First,
        By::Protector => Announcer::Second,
    }
}

fn announce(by: By, range: Range) {
    let word = &ANNOUNCES[announcer(by) as usize];
    if word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        while word.swap(2, Acquire) != 0 {
            futex::wait(word, 2, LOOK_NS, Sharing::Private);
        }
    }
    HAZARDS.announce_bytes(announcer(by), range.start..range.end);
}

fn for_held(range: Range, each: &mut dyn FnMut(Range)) {
    HAZARDS.for_held_bytes(range.start..range.end, |held| each(Range { start: held.start, end: held.end }));
}

fn withdraw(by: By) {
    HAZARDS.withdraw(announcer(by));
    let word = &ANNOUNCES[announcer(by) as usize];
    if word.swap(0, Release) == 2 {
        futex::wake(word, Sharing::Private);
    }
}

fn managed(page: u64) -> Run {
    let free_until = |end: usize| Run { managed: Managed::No, end: end as u64 / PAGE };
    // SAFETY: the pointer is null or leads to a byte that is there for ever.
    let is_ours = unsafe { IS_OURS.load(Acquire).as_ref() }.is_some_and(|byte| byte.load(Relaxed) == 1);
    if !is_ours {
        return free_until(usize::MAX);
    }
    let address = (page * PAGE) as usize;
    match REGIONS.around(address, |_| std::hint::spin_loop()) {
        Some(region) if region.start <= address => {
            Run { managed: Managed::Writable, end: region.end as u64 / PAGE }
        }
        Some(region) => free_until(region.start),
        None => free_until(usize::MAX),
    }
}

fn held_at_once() -> u64 {
    HELD_BYTES.load(Relaxed)
}

/// What its parent's threads hold, announce and change is not the child's.
extern "C" fn in_child() {
    inside::forget_all();
    REGIONS.forget_all();
    CHANGING.store(0, Release);
    ANNOUNCES.iter().for_each(|word| word.store(0, Relaxed));
}

pub(super) fn stand() -> Option<&'static Calls> {
    static STANDS: Mutex<Stands> = Mutex::new(Stands::NotYet);
    let mut stands = STANDS.lock().unwrap_or_else(PoisonError::into_inner);
    if *stands == Stands::NotYet {
        *stands = try_to_stand();
    }
    if *stands != Stands::Yes {
        return None;
    }
    // In a child that makes a swap of its own the regions are those of its parent; it may have been
    // forked by other means than the C library's.
    // SAFETY: the pointer was set before, and its page stays for ever.
    if let Some(byte) = unsafe { IS_OURS.load(Acquire).as_ref() }
        && byte.load(Relaxed) == 0
    {
        in_child();
        byte.store(1, Release);
    }
    Some(&CALLS)
}

/// Whether the gate stands before the calls of the process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Nobody has tried, or a thread did not stand still: the next swap tries again.
    NotYet,
    Yes,
    /// It cannot.
    Never,
}

fn try_to_stand() -> Stands {
    let texts = texts_of_library();
    if texts.is_empty() || !is_prepared() {
        return Stands::Never;
    }
    // SAFETY: the texts are the C library's, which is never unloaded; nor is this object.
    match unsafe { inside::stand_inside(&texts) } {
        Ok(()) => Stands::Yes,
        Err(Refusal::Text) => Stands::Never,
        Err(Refusal::Threads) => Stands::NotYet,
    }
}

/// Prepares what calls look at, once.
fn is_prepared() -> bool {
    if !IS_OURS.load(Acquire).is_null() {
        return true;
    }
    stay_loaded();
    // SAFETY: the function takes and returns nothing, and this object stays loaded.
    if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
        return false;
    }
    MANAGED.set(managed);
    HELD_AT_ONCE.set(held_at_once);
    note_ours().is_some()
}

/// Makes the byte that says whose the regions are.
fn note_ours() -> Option<()> {
    let bytes = PAGE as usize;
    // SAFETY: a new mapping.
    let page = unsafe {
        mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).ok()?
    };
    // SAFETY: the mapping just made.
    unsafe { madvise(page, bytes, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the page is zero, which is a value, and stays for ever.
    unsafe { &*page.cast::<AtomicU8>() }.store(1, Release);
    IS_OURS.store(page.cast(), Release);
    Some(())
}

/// Where the C library's code is.
fn texts_of_library() -> Vec<ops::Range<u64>> {
    extern "C" fn see(object: *mut libc::dl_phdr_info, _bytes: usize, texts: *mut c_void) -> c_int {
        // SAFETY: the loader's description of an object, and the vector below.
        let (object, texts) = unsafe { (&*object, &mut *texts.cast::<Vec<ops::Range<u64>>>()) };
        if object.dlpi_name.is_null() || object.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the loader's strings and headers.
        let (name, headers) = unsafe {
            let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
            (CStr::from_ptr(object.dlpi_name).to_bytes(), headers)
        };
        let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let is_library = [&b"libc.so"[..], b"libc-2", b"libpthread.so", b"libpthread-2"];
        if is_library.iter().any(|start| file.starts_with(start)) {
            let code = headers.iter().filter(|it| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_X != 0);
            texts.extend(code.map(|it| {
                let start = object.dlpi_addr + it.p_vaddr;
                start..start + it.p_memsz
            }));
        }
        0
    }
    let mut texts = Vec::new();
    // SAFETY: the function gets the vector, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(see), (&raw mut texts).cast()) };
    texts
}

/// Keeps the object that this code is a part of from being unloaded: the C library's calls come
/// here from now on.
fn stay_loaded() {
    // SAFETY: all-zero is a value of it; the loader fills it, and its name is a string.
    unsafe {
        let mut object: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(stay_loaded as *const c_void, &raw mut object) != 0 && !object.dli_fname.is_null() {
            libc::dlopen(object.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

pub(super) fn limit(bytes: u64) {
    HELD_BYTES.fetch_min((bytes / 8) & !(PAGE - 1), Relaxed);
}

pub(super) fn begin(start: usize, end: usize) {
    change(|| {
        // Where the set is full, calls on the region fail with EFAULT.
        let _ = REGIONS.insert(start, end);
    });
}

pub(super) fn end(start: usize, end: usize) {
    change(|| REGIONS.forget(start, end));
}

/// Changes the set, with all signals blocked, also those that the C library keeps for itself.
fn change(how: impl FnOnce()) {
    let _blocked = SignalsBlocked::now();
    while CHANGING.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        std::hint::spin_loop();
    }
    how();
    CHANGING.store(0, Release);
}

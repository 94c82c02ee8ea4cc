//! Words that the kernel reads and writes where it cannot wait for a page: in robust and
//! priority-inheriting mutexes, and the word that it clears at a thread's end (clone(2),
//! CLONE_CHILD_CLEARTID). The pages that hold them stay resident.
//!
//! A thread's robust list, its head in the control block, goes through such mutexes only. Of a list
//! of the program's own nothing is known here, nor of calls that it makes without the C library.

#[cfg(target_arch = "x86_64")]
use crate::instruments::is_mapped;
use crate::next;
use crate::program_call;
use crate::start::engine;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use folioswap_pager::engine::holds::Populate;
#[cfg(target_arch = "x86_64")]
use folioswap_pager::kernel::sys;
use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general as raw;

/// Bytes of a mutex of the C library (40 on x86-64, 48 on aarch64).
const MUTEX_BYTES: usize = 48;

/// Before a thread ends whose C library does not know our functions: what its list of robust
/// mutexes names comes back, and stays. The kernel walks the list where nobody serves its faults.
#[cfg(target_arch = "x86_64")]
pub extern "C" fn keep_robust_list() {
    /// As many as the kernel looks at.
    const LIMIT: usize = 2048;
    const IS_PRIORITY_INHERITING: usize = 1;
    let Some(engine) = engine() else { return };
    let (mut head, mut bytes) = (0usize, 0usize);
    let words = [0, &raw mut head as usize, &raw mut bytes as usize, 0, 0, 0];
    // SAFETY: writes two words.
    if unsafe { sys::syscall(raw::__NR_get_robust_list, words) }.is_err() || !is_mapped(head) {
        return;
    }
    // SAFETY: the thread's own list, as the kernel reads it: the first entry, where the word of
    // each is, and an entry that is on its way. A page that is mapped may be read.
    let [mut entry, offset, pending] = unsafe { (head as *const [usize; 3]).read_unaligned() };
    let keep = |entry: usize| {
        let word = (entry & !IS_PRIORITY_INHERITING).wrapping_add(offset);
        if is_mapped(word) {
            engine.keep_resident_from_now(word, word + size_of::<u32>());
        }
    };
    for _ in 0..LIMIT {
        let at = entry & !IS_PRIORITY_INHERITING;
        if at == head || !is_mapped(at) {
            break;
        }
        engine.keep_resident_from_now(at, at + size_of::<usize>());
        keep(entry);
        // SAFETY: as above.
        entry = unsafe { (at as *const usize).read_unaligned() };
    }
    if pending != 0 {
        keep(pending);
    }
}

/// PTHREAD_MUTEX_STALLED and PTHREAD_PRIO_NONE: what a mutex is without an attribute.
const PLAIN: c_int = 0;

/// Whether a mutex with these attributes is robust, or passes its owner's priority on.
///
/// # Safety
/// `attributes` is null, or as pthread_mutex_init wants it.
unsafe fn kernel_uses(attributes: *const c_void) -> bool {
    if attributes.is_null() {
        return false;
    }
    let robust = next!(try pthread_mutexattr_getrobust: fn(*const c_void, *mut c_int) -> c_int);
    let protocol = next!(try pthread_mutexattr_getprotocol: fn(*const c_void, *mut c_int) -> c_int);
    [robust, protocol].into_iter().flatten().any(|get| {
        let mut value = PLAIN;
        // SAFETY: by the caller's contract; the value is this function's own.
        unsafe { get(attributes, &raw mut value) == 0 && value != PLAIN }
    })
}

/// pthread_mutex_init(3).
///
/// # Safety
/// As pthread_mutex_init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int {
    // SAFETY: by the caller's contract.
    if unsafe { kernel_uses(attributes) }
        && let Some(engine) = engine()
    {
        // Whoever locks it writes into it, which brings it in, so nobody needs to wait here.
        engine.keep_word_resident(mutex as usize, mutex as usize + MUTEX_BYTES);
    }
    // SAFETY: by the caller's contract.
    unsafe { next!(pthread_mutex_init: fn(*mut c_void, *const c_void) -> c_int)(mutex, attributes) }
}

/// clone(2). The C library's function takes up to three arguments more than four, all of which are
/// passed on: their places can be read whether the caller has filled them or not.
///
/// # Safety
/// As clone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    start: usize,
    stack: usize,
    flags: c_int,
    argument: usize,
    parent_word: usize,
    tls: usize,
    child_word: usize,
) -> c_int {
    if flags as u32 & raw::CLONE_CHILD_CLEARTID != 0 {
        keep_cleared_word(child_word);
    }
    let next = next!(clone: fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int);
    // SAFETY: by the caller's contract. The child begins at `start` on its own stack, so nothing of
    // this frame is used twice.
    unsafe { next(start, stack, flags, argument, parent_word, tls, child_word) }
}

/// Keeps the word resident that the kernel clears when a thread ends.
pub(crate) fn keep_cleared_word(word: usize) {
    if let Some(engine) = engine() {
        // Nobody may touch it from now until the kernel does.
        engine.keep_resident_from_now(word, word.saturating_add(size_of::<c_int>()));
    }
}

/// futex(2). A word that the kernel writes is brought in as often as it has left, and one that
/// passes on priority stays resident: the kernel writes it when a waiter or the owner ends, too.
///
/// # Safety
/// As futex.
pub(crate) unsafe fn futex(arguments: [usize; 6]) -> Result<usize, i32> {
    /// An evictor that takes all may take a page between its arrival and the call.
    const TRIES: usize = 64;
    let [word, operation, _, _, other, _] = arguments;
    let ask = || {
        // SAFETY: by the caller's contract.
        unsafe { program_call::make(raw::__NR_futex, arguments) }
    };
    let command = operation as u32 & !(raw::FUTEX_PRIVATE_FLAG | raw::FUTEX_CLOCK_REALTIME);
    let (written, passes_priority) = match command {
        raw::FUTEX_WAKE_OP => (other, false),
        raw::FUTEX_LOCK_PI | raw::FUTEX_LOCK_PI2 | raw::FUTEX_TRYLOCK_PI | raw::FUTEX_UNLOCK_PI => {
            (word, true)
        }
        raw::FUTEX_WAIT_REQUEUE_PI | raw::FUTEX_CMP_REQUEUE_PI => (other, true),
        // All others only read.
        _ => return ask(),
    };
    if passes_priority {
        keep_inheriting_word(written);
        if command == raw::FUTEX_WAIT_REQUEUE_PI {
            bring_in(written);
        }
    }
    let mut tries = 0;
    loop {
        // What ends with EFAULT before it sleeps has done nothing; afterwards the word is resident.
        // A wait that was requeued is over, and must not begin again.
        let result = ask();
        tries += 1;
        let may_repeat = command != raw::FUTEX_WAIT_REQUEUE_PI && tries < TRIES;
        if result != Err(EFAULT as i32) || !may_repeat || !bring_in(written) {
            return result;
        }
    }
}

/// Brings the page of a word in, writable; false where the program could not write it.
fn bring_in(word: usize) -> bool {
    let page = word & !0xfff;
    engine().is_some_and(|engine| engine.populate(page, page + 4096, Populate::Write).is_ok())
}

/// Keeps the page of a word resident for which the kernel hands a lock over.
fn keep_inheriting_word(word: usize) {
    const ENTRIES: usize = 64;
    /// Pages that were kept last, so that a lock that is fought for asks the pager once. A page
    /// that is unmapped and mapped again may be held for kept; its calls fail with EFAULT then,
    /// and bring it in.
    static KEPT: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];
    /// The most pages that are kept so: nothing tells when such a word is used no more.
    const PAGES_MAX: usize = 4096;
    static PAGES: AtomicUsize = AtomicUsize::new(0);
    let page = word & !0xfff;
    // Locks lie at equal distances: all bits of the address choose.
    let entry = &KEPT[(page >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> (usize::BITS - 6)];
    // A child that shares our memory has no pager that would keep it.
    if entry.load(Relaxed) != page
        && PAGES.load(Relaxed) < PAGES_MAX
        && let Some(engine) = engine().filter(|engine| engine.is_ours())
    {
        engine.keep_resident_from_now(page, page.saturating_add(4096));
        entry.store(page, Relaxed);
        PAGES.fetch_add(1, Relaxed);
    }
}

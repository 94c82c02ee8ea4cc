//! Words that the kernel reads and writes where it cannot wait for a page: in robust and
//! priority-inheriting mutexes, and the word that it clears at a thread's end (clone(2),
//! CLONE_CHILD_CLEARTID). The pages that hold them stay resident.
//!
//! A thread's robust list, its head in the control block, goes through such mutexes only. Of the
//! same by system calls of the program's own nothing is known here.

use crate::next;
use crate::start::engine;
use core::ffi::{c_int, c_void};
use linux_raw_sys::general as raw;

/// Bytes of a mutex of the C library (40 on x86-64, 48 on aarch64).
const MUTEX_BYTES: usize = 48;

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
    if flags as u32 & raw::CLONE_CHILD_CLEARTID != 0
        && let Some(engine) = engine()
    {
        // Nobody may touch it from now until the kernel does.
        engine.keep_resident_from_now(child_word, child_word + size_of::<c_int>());
    }
    let next = next!(clone: fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int);
    // SAFETY: by the caller's contract. The child begins at `start` on its own stack, so nothing of
    // this frame is used twice.
    unsafe { next(start, stack, flags, argument, parent_word, tls, child_word) }
}

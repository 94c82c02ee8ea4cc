//! pthread_create: the control block of every thread stays resident.
//!
//! The kernel writes into a thread's control block when the thread ends, at a point at which no fault can be served: a
//! block that is swapped out then would leave pthread_join waiting for ever.

use crate::next;
use crate::start::engine;
use core::ffi::{c_int, c_void};
use folioswap_pager::sys;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// What a thread is to run, on its creator's heap until it has taken it over.
#[repr(C)]
struct Launch {
    start: Start,
    argument: *mut c_void,
}

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(place: *mut c_void);
}

extern "C" fn launch(argument: *mut c_void) -> *mut c_void {
    let launch = argument.cast::<Launch>();
    // SAFETY: made by pthread_create below, for this thread alone.
    let Launch { start, argument } = unsafe { launch.read() };
    // SAFETY: it came from malloc.
    unsafe { free(launch.cast()) };
    if let Some(engine) = engine() {
        let control_block = sys::thread_pointer();
        engine.keep_resident(control_block - 4096, control_block + 8192);
    }
    start(argument)
}

/// pthread_create(3).
///
/// # Safety
/// As pthread_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut usize,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let create = next!(pthread_create: fn(*mut usize, *const c_void, Start, *mut c_void) -> c_int);
    if engine().is_none() {
        // SAFETY: the caller's.
        return unsafe { create(thread, attributes, start, argument) };
    }
    // SAFETY: the caller's; malloc is called in a thread of the program.
    unsafe {
        let place = malloc(size_of::<Launch>()).cast::<Launch>();
        if place.is_null() {
            return create(thread, attributes, start, argument);
        }
        place.write(Launch { start, argument });
        let result = create(thread, attributes, launch, place.cast());
        if result != 0 {
            free(place.cast());
        }
        result
    }
}

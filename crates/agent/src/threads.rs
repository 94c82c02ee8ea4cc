//! pthread_create: the stack and control block of every thread stay resident.
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
    stack_bytes: usize,
}

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(place: *mut c_void);
    fn pthread_attr_getstacksize(attributes: *const c_void, bytes: *mut usize) -> c_int;
}

/// Stack size assumed when the attributes do not say: that of an ordinary thread.
const STACK_BYTES: usize = 8 << 20;

extern "C" fn launch(argument: *mut c_void) -> *mut c_void {
    let launch = argument.cast::<Launch>();
    // SAFETY: made by pthread_create below, for this thread alone.
    let Launch { start, argument, stack_bytes } = unsafe { launch.read() };
    // SAFETY: it came from malloc.
    unsafe { free(launch.cast()) };
    if let Some(engine) = engine() {
        let control_block = sys::thread_pointer();
        let here = &raw const start as usize;
        // The block lies at the top of the stack that the C library made, or far away from one that the program gave.
        let top = control_block + 8192;
        let near = here < control_block && control_block - here < stack_bytes;
        engine.keep_resident(if near { top - stack_bytes.min(16 << 20) } else { control_block - 4096 }, top);
        if !near {
            engine.keep_resident(here.saturating_sub(64 << 10), here + 4096);
        }
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
    let mut stack_bytes = STACK_BYTES;
    // SAFETY: the attributes are the caller's, initialised if not null; malloc is called in a thread of the program.
    unsafe {
        if !attributes.is_null() {
            let mut asked = 0;
            if pthread_attr_getstacksize(attributes, &raw mut asked) == 0 && asked != 0 {
                stack_bytes = asked;
            }
        }
        let place = malloc(size_of::<Launch>()).cast::<Launch>();
        if place.is_null() {
            return create(thread, attributes, start, argument);
        }
        place.write(Launch { start, argument, stack_bytes });
        let result = create(thread, attributes, launch, place.cast());
        if result != 0 {
            free(place.cast());
        }
        result
    }
}

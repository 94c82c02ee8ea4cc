//! pthread_create: the control block of every thread stays resident.
//!
//! The kernel writes into a thread's control block when the thread ends, at a point at which no
//! fault can be served. A block that is swapped out then would leave pthread_join waiting for ever.

use crate::libc::{free, malloc};
use crate::next;
use crate::start::engine;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use folioswap_pager::kernel::processor;
use folioswap_pager::program::announce::Intent;

/// Thread-local data that stay resident beside the control block of each thread.
const THREAD_DATA_BYTES: usize = 4 << 10;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// The start of a thread, on its creator's heap until the thread has taken it over.
#[repr(C)]
struct Launch {
    start: Start,
    argument: *mut c_void,
    /// The requested size; 0 for the default.
    stack_bytes: usize,
}

/// The largest stack that runtimes request by themselves. A program that requests a larger one
/// means to use it. The C library maps it unseen by the agent, and it is touched at full speed.
const USUAL_STACK_BYTES: usize = 2 << 20;
/// Sum of the large stacks of all threads so far.
static LARGE_STACKS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn pthread_attr_getstacksize(attributes: *const c_void, bytes: *mut usize) -> i32;
}

extern "C" fn launch(argument: *mut c_void) -> *mut c_void {
    let launch = argument.cast::<Launch>();
    // SAFETY: pthread_create below made it, for this thread alone.
    let Launch { start, argument, stack_bytes } = unsafe { launch.read() };
    // SAFETY: it came from malloc.
    unsafe { free(launch.cast()) };
    if let Some(engine) = engine() {
        let data = processor::thread_data(THREAD_DATA_BYTES);
        engine.keep_resident(data.start, data.end);
        if stack_bytes > USUAL_STACK_BYTES {
            let all = LARGE_STACKS.fetch_add(stack_bytes, Relaxed) + stack_bytes;
            engine.memory_was_mapped(all, Intent::Whole);
        }
        // A fork that did not know of this range yet may have protected it, so the bytes that the
        // kernel writes at the thread's end are written here before.
        let (_, certain) = processor::control_block();
        for address in certain {
            // SAFETY: the control block is mapped for the life of the thread; its bytes stay as
            // they are, even if other threads write there.
            unsafe { processor::touch_byte(address) };
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
        // SAFETY: by the caller's contract.
        return unsafe { create(thread, attributes, start, argument) };
    }
    // SAFETY: by the caller's contract; malloc is called in a thread of the program.
    unsafe {
        let launched = malloc(size_of::<Launch>()).cast::<Launch>();
        if launched.is_null() {
            return create(thread, attributes, start, argument);
        }
        let mut stack_bytes = 0;
        if !attributes.is_null() {
            pthread_attr_getstacksize(attributes, &raw mut stack_bytes);
        }
        launched.write(Launch { start, argument, stack_bytes });
        let result = create(thread, attributes, launch, launched.cast());
        if result != 0 {
            free(launched.cast());
        }
        result
    }
}

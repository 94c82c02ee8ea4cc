//! The functions of the C library that the agent calls or stands in front of, looked up by name.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    /// The C library's environment.
    pub static environ: *const *const c_char;
    /// Registers fork handlers; `pthread_atfork` itself is not a dynamic symbol.
    pub fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        dso: *mut c_void,
    ) -> c_int;
    /// Address of the calling thread's errno.
    pub fn __errno_location() -> *mut c_int;
}

/// A function that stands behind ours, found at its first use.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

impl Next {
    /// The next function of this name.
    pub const fn new(name: &'static CStr) -> Self {
        Next { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address.
    ///
    /// # Panics
    /// When the program's C library has no such function; the program could not have been linked with it.
    pub fn address(&self) -> *mut c_void {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            // SAFETY: a terminated name; called in a thread of the program.
            found = unsafe { dlsym(RTLD_NEXT, self.name.as_ptr()) };
            assert!(!found.is_null(), "the C library has no {:?}", self.name);
            self.found.store(found, Relaxed);
        }
        found
    }
}

/// Declares a function behind ours, with its type.
#[macro_export]
macro_rules! next {
    ($name:ident: fn($($argument:ty),* $(,)?) -> $result:ty) => {{
        static NEXT: $crate::libc::Next = $crate::libc::Next::new(
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            },
        );
        #[allow(unused_unsafe, reason = "some callers stand in an unsafe block already")]
        // SAFETY: the C library's function of this name has this type.
        let function = unsafe {
            core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($argument),*) -> $result>(NEXT.address())
        };
        function
    }};
}

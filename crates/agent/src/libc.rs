//! The functions of the C library that the agent calls or interposes, looked up by name.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
    /// The C library's environment.
    pub static environ: *const *const c_char;
    fn __errno_location() -> *mut c_int;
    #[link_name = "folioswap_register_atfork"]
    static REGISTER_ATFORK: Option<RegisterAtfork>;
    #[link_name = "folioswap_rseq_offset"]
    static RSEQ_OFFSET: *const isize;
    #[link_name = "folioswap_rseq_size"]
    static RSEQ_SIZE: *const u32;
    #[link_name = "folioswap_asan_init"]
    static ASAN_INIT: *const c_void;
    #[link_name = "folioswap_tsan_init"]
    static TSAN_INIT: *const c_void;
    #[link_name = "folioswap_msan_init"]
    static MSAN_INIT: *const c_void;
    pub fn malloc(bytes: usize) -> *mut c_void;
    pub fn free(start: *mut c_void);
    fn getauxval(kind: u64) -> u64;
}

/// A word with the address of a symbol, or zero where no object has it. A reference that is not
/// weak would keep the dynamic linker from starting the program (musl has no `__register_atfork`).
macro_rules! weak {
    ($($symbol:literal as $word:literal),*) => {$(
        core::arch::global_asm!(
            concat!(".weak ", $symbol),
            ".pushsection .data.rel.ro, \"aw\"",
            ".p2align 3",
            concat!(".globl ", $word),
            concat!(".hidden ", $word),
            concat!(".type ", $word, ", @object"),
            concat!(".size ", $word, ", 8"),
            concat!($word, ":"),
            concat!(".quad ", $symbol),
            ".popsection",
        );
    )*};
}

weak! {
    "__register_atfork" as "folioswap_register_atfork",
    "__rseq_offset" as "folioswap_rseq_offset",
    "__rseq_size" as "folioswap_rseq_size",
    "__asan_init" as "folioswap_asan_init",
    "__tsan_init" as "folioswap_tsan_init",
    "__msan_init" as "folioswap_msan_init"
}

/// Registers fork handlers; the last argument is the caller's object, or null.
pub type RegisterAtfork = unsafe extern "C" fn(
    prepare: Option<extern "C" fn()>,
    parent: Option<extern "C" fn()>,
    child: Option<extern "C" fn()>,
    dso: *mut c_void,
) -> c_int;

/// Where the C library has the area of restartable sequences of each thread, from the thread
/// pointer on, and its bytes; `None` where it has none (before glibc 2.35).
pub fn restartable_sequences() -> Option<(isize, u32)> {
    // SAFETY: the dynamic linker has written the words before any code of this object runs; what
    // they point to is constant.
    unsafe { Some((*RSEQ_OFFSET.as_ref()?, *RSEQ_SIZE.as_ref()?)) }
}

/// The function that registers fork handlers (`pthread_atfork` itself is no dynamic symbol); `None`
/// in a program whose C library is not glibc.
pub fn register_atfork() -> Option<RegisterAtfork> {
    // SAFETY: the dynamic linker has written the word before any code of this object runs.
    unsafe { REGISTER_ATFORK }
}

/// Sets the calling thread's errno.
pub fn set_errno(errno: i32) {
    // SAFETY: the variable is the calling thread's own.
    unsafe { *__errno_location() = errno };
}

/// Sets the calling thread's errno, and returns what a function that has failed returns.
pub fn failed(errno: i32) -> c_int {
    set_errno(errno);
    -1
}

/// The calling thread's errno.
pub fn errno() -> i32 {
    // SAFETY: the variable is the calling thread's own.
    unsafe { *__errno_location() }
}

/// Whether AddressSanitizer's library, or a program that exports it, is loaded. Weak symbols tell
/// of the sanitizers: dlsym(3) of a name that nobody has calls malloc, and this is asked in the
/// constructor, when a program's own malloc may not be ready.
pub fn has_address_sanitizer() -> bool {
    // SAFETY: the dynamic linker has written the word before any code of this object runs.
    unsafe { !ASAN_INIT.is_null() }
}

/// Lets the allocator of a program make its mappings, if it has one of its own: a sanitizer looks
/// for others' before it makes them, and what others reserve is not to be ours. It makes them at
/// the first call of its malloc at the latest. That of a program at a fixed address may be part of
/// a heap that was dumped, and is not ready before main: it is called for a sanitizer only. For the
/// constructor.
pub fn wake_allocator() {
    // SAFETY: as above.
    let is_exported = unsafe { !TSAN_INIT.is_null() || !MSAN_INIT.is_null() };
    // Of this function, sanitizers that are linked in define one, and export no names of their own.
    let is_sanitizer = is_exported || is_interposed_by_program(c"_longjmp");
    if is_sanitizer || !is_at_fixed_address() || !is_interposed_by_program(c"malloc") {
        // SAFETY: what was taken is given back. The compiler knows both functions, and would leave
        // out a pair that nothing looks at.
        unsafe { free(core::hint::black_box(malloc(1))) };
    }
}

/// Whether the program itself defines a function that the C library has.
fn is_interposed_by_program(name: &CStr) -> bool {
    // SAFETY: the name is terminated, and the C library has it, so neither look fails.
    unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) != dlsym(RTLD_NEXT, name.as_ptr()) }
}

/// Whether the program's own headers lie where they say.
fn is_at_fixed_address() -> bool {
    const PHDR: u64 = 3;
    const PHNUM: u64 = 5;
    /// Words of a program header: type and flags, offset, address, and four more.
    const WORDS: usize = 7;
    const TYPE_OF_HEADERS: u32 = 6;
    // SAFETY: the numbers are known; the kernel tells where the headers are, and how many.
    let (start, count) = unsafe { (getauxval(PHDR), getauxval(PHNUM)) };
    (0..count as usize).any(|index| {
        // SAFETY: the headers are mapped as long as the program.
        let header = unsafe { *(start as *const [u64; WORDS]).add(index) };
        header[0] as u32 == TYPE_OF_HEADERS && header[2] == start
    })
}

/// The function behind one that the agent interposes.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();

impl Next {
    /// The next function of this name.
    pub const fn new(name: &'static CStr) -> Self {
        Next { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The function's address; `None` when the program's C library has no such function.
    pub fn find(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            // SAFETY: the name is terminated, and the call runs in a thread of the program.
            // `dlerror` clears a failure, which is no error of the program's.
            unsafe {
                found = dlsym(RTLD_NEXT, self.name.as_ptr());
                dlerror();
            }
            self.found.store(found, Relaxed);
        }
        (!found.is_null()).then_some(found)
    }
}

/// Declares the function behind an interposed one, with its type; with `try`, as an option. The
/// function is looked up when the agent is loaded, because execve may be called where the dynamic
/// linker's lock cannot be waited for, in a signal handler or a child made by vfork. With `lazily`
/// it is looked up by its first call: a look for a name that the C library lacks calls malloc, and
/// a program's own malloc may not be ready when the agent is loaded.
#[macro_export]
macro_rules! next {
    (try $name:ident: fn($($argument:ty),* $(,)?) -> $result:ty) => {{
        static NEXT: $crate::libc::Next = $crate::next!(@named $name);
        extern "C" fn look_up() {
            NEXT.find();
        }
        #[used]
        #[unsafe(link_section = ".init_array")]
        static AT_LOAD: extern "C" fn() = look_up;
        $crate::next!(@found NEXT, fn($($argument),*) -> $result)
    }};
    (lazily $name:ident: fn($($argument:ty),* $(,)?) -> $result:ty) => {{
        static NEXT: $crate::libc::Next = $crate::next!(@named $name);
        $crate::next!(@found NEXT, fn($($argument),*) -> $result)
    }};
    (@named $name:ident) => {
        $crate::libc::Next::new(
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            },
        )
    };
    (@found $next:ident, fn($($argument:ty),*) -> $result:ty) => {{
        #[allow(unused_unsafe, reason = "some callers stand in an unsafe block already")]
        $next.find().map(|found| {
            // SAFETY: the C library's function of this name has this type.
            unsafe {
                core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($argument),*) -> $result>(found)
            }
        })
    }};
    ($name:ident: fn($($argument:ty),* $(,)?) -> $result:ty) => {
        match $crate::next!(try $name: fn($($argument),*) -> $result) {
            Some(function) => function,
            None => panic!(concat!("the C library has no ", stringify!($name))),
        }
    };
}

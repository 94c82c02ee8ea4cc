//! NumPy's allocator (NEP 49): a handler for large allocations.
//!
//! NumPy exports its functions in a table of pointers (`numpy._core._multiarray_umath._ARRAY_API`).
//! The indices are part of its ABI and unchanged since 1.22: 304 PyDataMem_SetHandler, 305
//! PyDataMem_GetHandler, 306 PyDataMem_DefaultHandler. NumPy chooses the handler by context; an
//! array keeps a reference to the handler that it was made with, which frees its memory.

use crate::engine::Managed;
use folioswap_heap::{Fill, PAGE};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// A smaller allocation stays NumPy's own, because a piece is of whole pages and small memory is
/// hot.
pub(crate) const MANAGED_BYTES: usize = 16 << 10;

const NAME: &CStr = c"mem_handler";
const SET_HANDLER: usize = 304;
const GET_HANDLER: usize = 305;
const DEFAULT_HANDLER: usize = 306;

/// `PyDataMemAllocator` of NumPy's `ndarraytypes.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocator {
    ctx: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// `PyDataMem_Handler`, version 1.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
}

/// The data that the handler's functions find at `ctx`.
struct Context {
    managed: Arc<Managed>,
    /// NumPy's own allocator, for small allocations.
    small: Allocator,
}

impl Context {
    /// # Safety
    /// `ctx` belongs to a handler of ours that is alive.
    unsafe fn of<'a>(ctx: *mut c_void) -> &'a Context {
        // SAFETY: the caller vouches for `ctx`.
        unsafe { &*ctx.cast() }
    }

    fn large(&self, bytes: usize, fill: Fill) -> *mut c_void {
        self.managed.allocate(bytes, fill).map_or(null_mut(), |piece| piece.as_ptr().cast())
    }
}

// SAFETY (of the four functions): NumPy calls them with the context of their handler, and with
// memory that the same handler allocated. A panic ends the process, because it cannot unwind into
// C.
unsafe extern "C" fn malloc(ctx: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as above.
    let context = unsafe { Context::of(ctx) };
    if bytes < MANAGED_BYTES {
        // SAFETY: as above.
        return unsafe { (context.small.malloc)(context.small.ctx, bytes) };
    }
    context.large(bytes, Fill::Any)
}

unsafe extern "C" fn calloc(ctx: *mut c_void, count: usize, each: usize) -> *mut c_void {
    // SAFETY: as above.
    let context = unsafe { Context::of(ctx) };
    match count.checked_mul(each) {
        None => null_mut(),
        // SAFETY: as above.
        Some(bytes) if bytes < MANAGED_BYTES => unsafe {
            (context.small.calloc)(context.small.ctx, count, each)
        },
        Some(bytes) => context.large(bytes, Fill::Zero),
    }
}

unsafe extern "C" fn realloc(ctx: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as above.
    let context = unsafe { Context::of(ctx) };
    let Some(piece) = NonNull::new(old.cast::<u8>()) else {
        // SAFETY: as above.
        return unsafe { malloc(ctx, bytes) };
    };
    let had = match context.managed.heap.length(piece) {
        Some(length) if bytes >= MANAGED_BYTES && bytes.next_multiple_of(PAGE) == length => return old,
        Some(length) => length,
        // SAFETY: as above.
        None if bytes < MANAGED_BYTES => unsafe {
            return (context.small.realloc)(context.small.ctx, old, bytes);
        },
        // SAFETY: NumPy's own handler takes its memory from malloc(3).
        None => unsafe { libc::malloc_usable_size(old) },
    };
    // SAFETY: two allocations, each at least as long as the copied bytes; the handler that
    // allocated the old one frees it.
    unsafe {
        let new = malloc(ctx, bytes);
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), had.min(bytes));
            free(ctx, old, had);
        }
        new
    }
}

unsafe extern "C" fn free(ctx: *mut c_void, memory: *mut c_void, bytes: usize) {
    // SAFETY: as above.
    let context = unsafe { Context::of(ctx) };
    let Some(piece) = NonNull::new(memory.cast::<u8>()) else { return };
    // SAFETY: as above; NumPy no longer uses the memory.
    unsafe {
        if context.managed.heap.free(piece).is_none() {
            (context.small.free)(context.small.ctx, memory, bytes);
        }
    }
}

/// NumPy's table of functions.
#[derive(Clone, Copy)]
struct Table(NonNull<*mut c_void>);

// SAFETY: the table is static in NumPy, and only read.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: PyOnceLock<Table> = PyOnceLock::new();

fn table(py: Python<'_>) -> PyResult<Table> {
    let import = || {
        let module = py
            .import("numpy._core._multiarray_umath")
            .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
        let version: u32 = module.getattr("_get_ndarray_c_version")?.call0()?.extract()?;
        // NPY_FEATURE_VERSION 0xf is NumPy 1.22; `_get_ndarray_c_version` returns the ABI's
        // version.
        if version < 0x0100_0009 {
            return Err(PyImportError::new_err("NumPy 1.22 or later is needed"));
        }
        let capsule = module.getattr("_ARRAY_API")?;
        // SAFETY: the capsule has no name; NumPy's module stays loaded.
        let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
        NonNull::new(table.cast()).map(Table).ok_or_else(|| PyErr::fetch(py))
    };
    TABLE.get_or_try_init(py, import).copied()
}

impl Table {
    /// # Safety
    /// The function at `index` has the type `F`.
    unsafe fn function<F: Copy>(self, index: usize) -> F {
        // SAFETY: the caller vouches for the type; a function pointer is as large as a pointer.
        unsafe { *self.0.as_ptr().add(index).cast::<F>() }
    }
}

/// Returns the handler struct of a capsule.
fn of_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<NonNull<Handler>> {
    // SAFETY: the interpreter checks the capsule's type and name.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
    NonNull::new(pointer.cast()).ok_or_else(|| PyErr::fetch(capsule.py()))
}

/// Makes a handler whose large allocations are pieces of this heap.
pub(crate) fn handler<'py>(py: Python<'py>, managed: &Arc<Managed>) -> PyResult<Bound<'py, PyCapsule>> {
    let table = table(py)?;
    // SAFETY: index 306 holds the address of NumPy's variable, which is a capsule.
    let default = unsafe {
        let variable: *mut *mut ffi::PyObject = table.function(DEFAULT_HANDLER);
        Bound::from_borrowed_ptr_or_err(py, *variable)?
    };
    // SAFETY: NumPy's own handler is static.
    let small = unsafe { of_capsule(&default)?.as_ref().allocator };
    let context = Box::into_raw(Box::new(Context { managed: Arc::clone(managed), small }));
    let mut name = [0; 127];
    for (to, from) in name.iter_mut().zip(b"folioswap") {
        *to = *from as c_char;
    }
    let allocator = Allocator { ctx: context.cast(), malloc, calloc, realloc, free };
    let handler = Box::into_raw(Box::new(Handler { name, version: 1, allocator }));
    // SAFETY: a new capsule. Its destructor frees both boxes, when the last array of the handler is
    // gone.
    unsafe {
        let capsule = ffi::PyCapsule_New(handler.cast(), NAME.as_ptr(), Some(destroy));
        if capsule.is_null() {
            drop((Box::from_raw(context), Box::from_raw(handler)));
        }
        Ok(Bound::from_owned_ptr_or_err(py, capsule)?.cast_into::<PyCapsule>()?)
    }
}

/// Frees a handler after its last array is gone.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: `handler` made the capsule.
    unsafe {
        let handler = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<Handler>();
        let context = (*handler).allocator.ctx.cast::<Context>();
        drop((Box::from_raw(handler), Box::from_raw(context)));
    }
}

/// Sets NumPy's handler in the current context, `None` for NumPy's own. Returns the one before.
#[pyfunction]
#[pyo3(signature = (handler))]
pub(crate) fn set_handler<'py>(
    py: Python<'py>,
    handler: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let table = table(py)?;
    if let Some(handler) = handler {
        of_capsule(handler)?;
    }
    // SAFETY: index 304 takes a borrowed capsule or NULL, and returns a new reference.
    unsafe {
        let set: unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject = table.function(SET_HANDLER);
        Bound::from_owned_ptr_or_err(py, set(handler.map_or(null_mut(), Bound::as_ptr)))
    }
}

/// Returns NumPy's handler in the current context.
#[pyfunction]
pub(crate) fn get_handler(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let table = table(py)?;
    // SAFETY: index 305 returns a new reference.
    unsafe {
        let get: unsafe extern "C" fn() -> *mut ffi::PyObject = table.function(GET_HANDLER);
        Bound::from_owned_ptr_or_err(py, get())
    }
}

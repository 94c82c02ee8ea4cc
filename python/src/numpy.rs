//! NumPy's allocator (NEP 49): a handler of ours for what is large.
//!
//! NumPy gives its functions in a table of pointers (`numpy._core._multiarray_umath._ARRAY_API`), whose places are part of its ABI and the same
//! since 1.22: 304 PyDataMem_SetHandler, 305 PyDataMem_GetHandler, 306 PyDataMem_DefaultHandler. Which handler is used is NumPy's to say, by
//! context; an array keeps a reference to the one that it was made with, and gives its memory back to that.

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

/// Below it an allocation is NumPy's own as before: a piece is of whole pages, and what is small is hot.
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

/// What our functions find at `ctx`.
struct Context {
    managed: Arc<Managed>,
    /// NumPy's own, for what is small.
    small: Allocator,
}

impl Context {
    /// # Safety
    /// `ctx` is that of a handler of ours, which lives.
    unsafe fn of<'a>(ctx: *mut c_void) -> &'a Context {
        // SAFETY: by contract.
        unsafe { &*ctx.cast() }
    }

    fn large(&self, bytes: usize, fill: Fill) -> *mut c_void {
        self.managed.allocate(bytes, fill).map_or(null_mut(), |piece| piece.as_ptr().cast())
    }
}

// SAFETY (of the four): called by NumPy, with the context of their handler and with memory that the same handler gave. A panic ends the process:
// it does not cross the border.
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
    // SAFETY: two allocations, each at least as long as what is copied; the old one is given back where it came from.
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
    // SAFETY: as above; NumPy is done with it.
    unsafe {
        if context.managed.heap.free(piece).is_none() {
            (context.small.free)(context.small.ctx, memory, bytes);
        }
    }
}

/// NumPy's table.
#[derive(Clone, Copy)]
struct Table(NonNull<*mut c_void>);

// SAFETY: a static table of NumPy's, read only.
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
        // NPY_FEATURE_VERSION 0xf is NumPy 1.22; `_get_ndarray_c_version` is the ABI's.
        if version < 0x0100_0009 {
            return Err(PyImportError::new_err("NumPy 1.22 or later is needed"));
        }
        let capsule = module.getattr("_ARRAY_API")?;
        // SAFETY: a capsule without a name; NumPy's module stays loaded.
        let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
        NonNull::new(table.cast()).map(Table).ok_or_else(|| PyErr::fetch(py))
    };
    TABLE.get_or_try_init(py, import).copied()
}

impl Table {
    /// # Safety
    /// The place is one of a function of type `F`.
    unsafe fn function<F: Copy>(self, place: usize) -> F {
        // SAFETY: by contract; a function pointer is as large as a pointer.
        unsafe { *self.0.as_ptr().add(place).cast::<F>() }
    }
}

/// The handler struct of a capsule.
fn of_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<NonNull<Handler>> {
    // SAFETY: the interpreter checks type and name.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
    NonNull::new(pointer.cast()).ok_or_else(|| PyErr::fetch(capsule.py()))
}

/// A handler whose large allocations are pieces of this heap.
pub(crate) fn handler<'py>(py: Python<'py>, managed: &Arc<Managed>) -> PyResult<Bound<'py, PyCapsule>> {
    let table = table(py)?;
    // SAFETY: place 306 holds the address of NumPy's variable, a capsule.
    let default = unsafe {
        let variable: *mut *mut ffi::PyObject = table.function(DEFAULT_HANDLER);
        Bound::from_borrowed_ptr_or_err(py, *variable)?
    };
    // SAFETY: NumPy's own handler, static.
    let small = unsafe { of_capsule(&default)?.as_ref().allocator };
    let context = Box::into_raw(Box::new(Context { managed: Arc::clone(managed), small }));
    let mut name = [0; 127];
    for (to, from) in name.iter_mut().zip(b"folioswap") {
        *to = *from as c_char;
    }
    let allocator = Allocator { ctx: context.cast(), malloc, calloc, realloc, free };
    let handler = Box::into_raw(Box::new(Handler { name, version: 1, allocator }));
    // SAFETY: a new capsule, whose destructor frees both boxes, when the last array of the handler is gone.
    unsafe {
        let capsule = ffi::PyCapsule_New(handler.cast(), NAME.as_ptr(), Some(destroy));
        if capsule.is_null() {
            drop((Box::from_raw(context), Box::from_raw(handler)));
        }
        Ok(Bound::from_owned_ptr_or_err(py, capsule)?.cast_into::<PyCapsule>()?)
    }
}

/// The capsule is gone: no array of the handler is left.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: made by `handler`.
    unsafe {
        let handler = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<Handler>();
        let context = (*handler).allocator.ctx.cast::<Context>();
        drop((Box::from_raw(handler), Box::from_raw(context)));
    }
}

/// Sets NumPy's handler in the current context, `None` for NumPy's own, and returns the one before.
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
    // SAFETY: place 304: takes a borrowed capsule or NULL, returns a new reference.
    unsafe {
        let set: unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject = table.function(SET_HANDLER);
        Bound::from_owned_ptr_or_err(py, set(handler.map_or(null_mut(), Bound::as_ptr)))
    }
}

/// NumPy's handler in the current context.
#[pyfunction]
pub(crate) fn get_handler(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let table = table(py)?;
    // SAFETY: place 305: returns a new reference.
    unsafe {
        let get: unsafe extern "C" fn() -> *mut ffi::PyObject = table.function(GET_HANDLER);
        Bound::from_owned_ptr_or_err(py, get())
    }
}

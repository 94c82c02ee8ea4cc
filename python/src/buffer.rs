//! A buffer: managed memory that behaves like a bytearray of fixed length.

use crate::engine::{Engine, Managed, Size};
use crate::error::exception;
use folioswap::Error;
use folioswap_heap::Fill;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire},
};
use std::sync::{Arc, Mutex, PoisonError};

/// Managed memory with the buffer protocol. The Python class `folioswap.Buffer` is derived from it.
#[pyclass(module = "folioswap._folioswap", name = "Buffer", subclass, frozen, weakref)]
pub(crate) struct Buffer {
    managed: Arc<Managed>,
    /// `None` after `close`.
    piece: Mutex<Option<Piece>>,
    bytes: usize,
    /// The number of views that exist.
    exports: AtomicUsize,
}

struct Piece(NonNull<u8>);

// SAFETY: the value is an address; Python's locking decides which thread uses the memory.
unsafe impl Send for Piece {}

impl Buffer {
    fn new(managed: &Arc<Managed>, bytes: u64) -> Result<Self, Error> {
        if bytes == 0 {
            return Err(Error::ZeroSize);
        }
        let too_large = Error::TooLarge { bytes, why: "it is more than an address space has" };
        let bytes = usize::try_from(bytes).map_err(|_| too_large)?;
        let piece = managed.allocate(bytes, Fill::Zero)?;
        let (managed, piece) = (Arc::clone(managed), Mutex::new(Some(Piece(piece))));
        Ok(Buffer { managed, piece, bytes, exports: AtomicUsize::new(0) })
    }

    fn first(&self) -> PyResult<NonNull<u8>> {
        let piece = self.piece.lock().unwrap_or_else(PoisonError::into_inner);
        let first = piece.as_ref().map(|piece| piece.0);
        first.ok_or_else(|| PyValueError::new_err("the buffer is closed"))
    }

    fn release(&self) {
        if let Some(piece) = self.piece.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // SAFETY: no view exists, because a view keeps the buffer alive and `close` refuses;
            // none can be made any more.
            let _ = unsafe { self.managed.heap.free(piece.0) };
        }
    }
}

#[pymethods]
impl Buffer {
    #[new]
    fn py_new(py: Python<'_>, engine: &Engine, size: Size) -> PyResult<Self> {
        engine.check_open()?;
        let bytes = size.bytes()?;
        py.detach(|| Buffer::new(engine.managed(), bytes)).map_err(exception)
    }

    fn __len__(&self) -> usize {
        self.bytes
    }

    #[getter]
    fn closed(&self) -> bool {
        self.first().is_err()
    }

    /// Frees the memory. Raises BufferError while a view of it exists.
    fn close(&self) -> PyResult<()> {
        if self.exports.load(Acquire) > 0 {
            return Err(PyBufferError::new_err("views of the buffer exist: release them first"));
        }
        self.release();
        Ok(())
    }

    fn __getitem__<'py>(this: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let item = PyMemoryView::from(this.as_any())?.get_item(key)?;
        if item.is_instance_of::<PyMemoryView>() { item.call_method0("tobytes") } else { Ok(item) }
    }

    fn __setitem__(this: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        PyMemoryView::from(this.as_any())?.set_item(key, value)
    }

    /// Called by the interpreter.
    ///
    /// # Safety
    /// `view` may be written, as the buffer protocol demands.
    unsafe fn __getbuffer__(this: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let own = this.get();
        let first = own.first()?;
        // SAFETY: the interpreter's view. The memory lives until the view is released, because
        // `close` refuses before.
        let failed = unsafe {
            let bytes = own.bytes as ffi::Py_ssize_t;
            ffi::PyBuffer_FillInfo(view, this.as_ptr(), first.as_ptr().cast(), bytes, 0, flags)
        } != 0;
        if failed {
            return Err(PyErr::fetch(this.py()));
        }
        own.exports.fetch_add(1, AcqRel);
        Ok(())
    }

    /// Called by the interpreter.
    ///
    /// # Safety
    /// The view came from `__getbuffer__`, as the buffer protocol demands.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, AcqRel);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
    }
}

//! An engine: a swap, the heap in it, and the settings from which a forked child makes the same.

use crate::error::exception;
use crate::fork::ForkPolicy;
use crate::numpy;
use folioswap::{Device, Error, IntoBytes, MemoryScope, Region, Swap, WhenFull};
use folioswap_heap::{Fill, Heap};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyOverflowError, PyPermissionError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The settings of a swap, from which a forked child makes one like it.
pub(crate) struct Recipe {
    limit: AtomicU64,
    devices: Vec<String>,
    when_full: WhenFull,
    scope: MemoryScope,
    user_faults_only: UserFaultsOnly,
    pub(crate) fork: ForkPolicy,
}

/// The reaction where system calls on swapped-out memory cannot be served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UserFaultsOnly {
    Refuse,
    Allow,
}

impl Recipe {
    pub(crate) fn make(&self) -> Result<Swap, Error> {
        let builder = Swap::builder().limit(self.limit.load(Relaxed));
        let mut builder = builder.when_full(self.when_full).scope(self.scope);
        for device in &self.devices {
            builder = builder.device(device.parse::<Device>()?);
        }
        builder.build()
    }
}

/// A heap and its settings. Arrays hold it through their handler, and buffers directly. It lives as
/// long as the last of them.
pub(crate) struct Managed {
    pub(crate) heap: Heap,
    pub(crate) recipe: Recipe,
    closed: AtomicBool,
}

impl Managed {
    /// Allocates a piece, unless the limit is closed.
    pub(crate) fn allocate(&self, bytes: usize, fill: Fill) -> Result<NonNull<u8>, Error> {
        if self.closed.load(Relaxed) {
            return Err(Error::Closed);
        }
        self.heap.allocate(bytes, fill)
    }
}

/// All that are alive.
static ALL: Mutex<Vec<Weak<Managed>>> = Mutex::new(Vec::new());

/// The lock of the list `ALL`. Lock order: before the lock of any heap.
pub(crate) type AllLocked = MutexGuard<'static, Vec<Weak<Managed>>>;

/// Returns all that are alive now.
pub(crate) fn all() -> Vec<Arc<Managed>> {
    lock_all().0
}

/// Returns all that are alive now, and the lock of the list, which no thread changes until the
/// guard is dropped.
pub(crate) fn lock_all() -> (Vec<Arc<Managed>>, AllLocked) {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|managed| managed.strong_count() > 0);
    (all.iter().filter_map(Weak::upgrade).collect(), all)
}

/// A size as Python passes it.
pub(crate) enum Size {
    Number(i128),
    Text(String),
}

impl<'py> FromPyObject<'_, 'py> for Size {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.extract() {
            return Ok(Size::Text(text));
        }
        match object.extract() {
            Ok(number) => Ok(Size::Number(number)),
            // An integer of more than 128 bits.
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Err(PyValueError::new_err(format!("{} is not a size in bytes", object.str()?)))
            }
            Err(_) => Err(PyTypeError::new_err(format!(
                "{} of type {} is not a size: give a number of bytes such as 2 << 30, or text such as \"512M\" or \"1.5G\"",
                object.repr()?,
                object.get_type().name()?
            ))),
        }
    }
}

impl Size {
    pub(crate) fn bytes(&self) -> PyResult<u64> {
        match self {
            Size::Number(number) => match u64::try_from(*number) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(PyValueError::new_err(format!("{number} is not a size in bytes"))),
            },
            Size::Text(text) => text.into_bytes().map_err(exception),
        }
    }
}

/// Returns the bytes of a size.
#[pyfunction]
pub(crate) fn parse_size(size: Size) -> PyResult<u64> {
    size.bytes()
}

/// A limit with its devices and threads.
#[pyclass(module = "folioswap._folioswap", frozen)]
pub(crate) struct Engine(Arc<Managed>);

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (limit, *, swap, when_full, scope, user_faults_only, fork))]
    fn new(
        py: Python<'_>,
        limit: Size,
        swap: Vec<String>,
        when_full: &str,
        scope: &str,
        user_faults_only: &str,
        fork: &str,
    ) -> PyResult<Self> {
        let choice = |name, given: &str, choices: &str| {
            Err(PyValueError::new_err(format!("{name}={given:?}: give {choices}")))
        };
        let recipe = Recipe {
            limit: AtomicU64::new(limit.bytes()?),
            devices: swap,
            when_full: match when_full {
                "exceed" => WhenFull::Exceed,
                "abort" => WhenFull::Abort,
                other => return choice("when_full", other, "\"exceed\" or \"abort\""),
            },
            scope: match scope {
                "total" => MemoryScope::Total,
                "resident" => MemoryScope::Resident,
                other => return choice("scope", other, "\"total\" or \"resident\""),
            },
            user_faults_only: match user_faults_only {
                "refuse" => UserFaultsOnly::Refuse,
                "allow" => UserFaultsOnly::Allow,
                other => return choice("user_faults_only", other, "\"refuse\" or \"allow\""),
            },
            fork: match fork {
                "copy" => ForkPolicy::Copy,
                "leave" => ForkPolicy::Leave,
                other => return choice("fork", other, "\"copy\" or \"leave\""),
            },
        };
        let swap = py.detach(|| recipe.make()).map_err(exception)?;
        if !swap.serves_system_calls() && recipe.user_faults_only == UserFaultsOnly::Refuse {
            return Err(PyPermissionError::new_err(
                "this process may use userfaultfd for its own accesses only, and no gate stands before its system calls: tofile, readinto and sockets would fail with EFAULT on arrays that \
                 are swapped out, and numpy.fromfile would return zeroes or too few items, without an error. `folioswap doctor` prints the command that mends it; \
                 user_faults_only=\"allow\" goes on without, and folioswap.save, load, tofile and fromfile work then",
            ));
        }
        let managed = Arc::new(Managed { heap: Heap::new(swap), recipe, closed: AtomicBool::new(false) });
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&managed));
        Ok(Engine(managed))
    }

    /// Returns NumPy's handler: a capsule "mem_handler".
    fn handler<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.check_open()?;
        numpy::handler(py, &self.0)
    }

    /// The limit in bytes.
    #[getter]
    fn limit(&self) -> u64 {
        if self.is_at_home() { self.0.heap.swap().limit() } else { self.0.recipe.limit.load(Relaxed) }
    }

    fn set_limit(&self, limit: Size) -> PyResult<()> {
        self.check_open()?;
        let bytes = limit.bytes()?;
        self.0.heap.swap().set_limit(bytes).map_err(exception)?;
        self.0.recipe.limit.store(bytes, Relaxed);
        Ok(())
    }

    #[getter]
    fn serves_system_calls(&self) -> bool {
        self.0.heap.swap().serves_system_calls()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.0.closed.load(Relaxed)
    }

    /// Refuses further arrays and buffers; existing ones live on.
    fn close(&self) {
        self.0.closed.store(true, Relaxed);
        self.0.heap.swap().close();
    }

    /// Returns the address, the bytes and the resident bytes of each array and buffer.
    fn pieces(&self, py: Python<'_>) -> PyResult<Vec<(usize, usize, usize)>> {
        let pieces = py.detach(|| self.0.heap.pieces()).map_err(exception)?;
        Ok(pieces.into_iter().map(|piece| (piece.address, piece.bytes, piece.resident_bytes)).collect())
    }

    /// Returns all figures, and a few lines of text.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, String)> {
        if !self.is_at_home() {
            return Err(exception(Error::Forked));
        }
        let (statistics, figures) = (self.0.heap.swap().statistics(), self.0.heap.figures());
        let dict = PyDict::new(py);
        dict.set_item("limit", statistics.limit())?;
        dict.set_item("charge", statistics.charge())?;
        dict.set_item("resident", statistics.resident_bytes())?;
        dict.set_item("times_exceeded", statistics.times_exceeded())?;
        dict.set_item("arrays", figures.pieces)?;
        dict.set_item("array_bytes", figures.bytes)?;
        dict.set_item("freed_bytes_kept", figures.left_bytes)?;
        dict.set_item("faults", statistics.faults())?;
        for (name, part) in [("fault_p50_ns", 0.5), ("fault_p99_ns", 0.99)] {
            dict.set_item(name, statistics.latency(part).map(|latency| latency.as_nanos() as u64))?;
        }
        for (name, value) in statistics.all() {
            dict.set_item(name, value)?;
        }
        Ok((dict, statistics.to_string()))
    }
}

impl Engine {
    pub(crate) fn managed(&self) -> &Arc<Managed> {
        &self.0
    }

    pub(crate) fn check_open(&self) -> PyResult<()> {
        if self.closed() { Err(exception(Error::Closed)) } else { Ok(()) }
    }

    /// Returns whether this is the process that the swap works in.
    fn is_at_home(&self) -> bool {
        self.0.heap.is_at_home()
    }
}

/// Returns the memory of a buffer: its first byte and its length.
pub(crate) fn memory(object: &Bound<'_, PyAny>) -> PyResult<(PyUntypedBuffer, NonNull<u8>, usize)> {
    let buffer = PyUntypedBuffer::get(object)?;
    let first = NonNull::new(buffer.buf_ptr().cast::<u8>());
    if !(buffer.is_c_contiguous() || buffer.is_fortran_contiguous()) {
        return Err(PyTypeError::new_err("memory with gaps: give an array or slice that is contiguous"));
    }
    let bytes = buffer.len_bytes();
    let first = first.filter(|_| bytes > 0);
    let first = first.ok_or_else(|| PyValueError::new_err("there is nothing in it"))?;
    Ok((buffer, first, bytes))
}

/// Calls `work` with the region that the memory lies in; `None`: it lies in none.
fn in_region<R: Send>(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    work: impl Fn(&Region, Range<usize>) -> R + Send + Sync,
) -> PyResult<Option<R>> {
    let (buffer, first, bytes) = memory(object)?;
    let address = first.as_ptr() as usize;
    let found = py.detach(|| {
        let first = NonNull::new(address as *mut u8)?;
        // SAFETY: the callers below advise and count, and take no slice of the region.
        all().iter().find_map(|managed| unsafe { managed.heap.with_region(first, bytes, &work) })
    });
    drop(buffer);
    Ok(found)
}

fn not_managed() -> PyErr {
    PyValueError::new_err(
        "this memory is not managed: it was made without folioswap, or is smaller than folioswap.MANAGED_BYTES",
    )
}

/// Gives advice about a buffer's memory: "page_out", "cold" or "will_need".
#[pyfunction]
pub(crate) fn advise(py: Python<'_>, object: &Bound<'_, PyAny>, advice: &str) -> PyResult<()> {
    let advise: fn(&Region, Range<usize>) -> Result<(), Error> = match advice {
        "page_out" => |region, range| region.page_out(range),
        "cold" => |region, range| region.cold(range),
        "will_need" => |region, range| region.will_need(range),
        other => return Err(PyValueError::new_err(format!("no advice: {other:?}"))),
    };
    in_region(py, object, advise)?.ok_or_else(not_managed)?.map_err(exception)
}

/// Returns how many bytes of the pages of a buffer are in memory now.
#[pyfunction]
pub(crate) fn resident_bytes(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<usize> {
    let bytes = in_region(py, object, |region, range| region.resident_bytes(range))?;
    bytes.ok_or_else(not_managed)?.map_err(exception)
}

/// Returns whether the buffer's memory is managed by a folioswap limit.
#[pyfunction]
pub(crate) fn is_managed(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(in_region(py, object, |_, _| ())?.is_some())
}

/// Returns the address of a buffer's first byte.
#[pyfunction]
pub(crate) fn address(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(memory(object)?.1.as_ptr() as usize)
}

/// Returns whether the process runs under `folioswap run`.
#[pyfunction]
pub(crate) fn is_under_run() -> bool {
    Swap::is_managed_already()
}

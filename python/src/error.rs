//! The crate's errors as Python's exceptions.

use folioswap::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError};

/// Returns the exception that a Python programmer expects.
pub(crate) fn exception(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::NoLimit | Error::UnderRun | Error::Forked | Error::OldKernel(_) | Error::PageSize(_) => {
            PyRuntimeError::new_err(text)
        }
        Error::NoUserfault(_) => PyPermissionError::new_err(text),
        Error::TooLarge { .. } => PyMemoryError::new_err(text),
        Error::System { errno, .. } if errno.raw_os_error() == libc::ENOMEM => PyMemoryError::new_err(text),
        Error::Transfer { errno, .. } => PyOSError::new_err((errno.raw_os_error(), text)),
        Error::System { .. } | Error::File(_) | Error::NotADirectory(_) => PyOSError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

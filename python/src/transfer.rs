//! Transfers between the memory of a buffer and a descriptor, for every process.

use crate::engine::{all, memory};
use crate::error::exception;
use folioswap::{Error, Region};
use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// The bytes of one system call on memory that is not managed, after which signals are handled.
const PIECE_BYTES: usize = 1 << 20;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// Memory that is read or written.
enum Memory {
    /// A range of a region.
    Managed(Arc<Region>, Range<usize>),
    /// The address of the first byte, and the number of bytes.
    Other(usize, usize),
}

impl Memory {
    fn of(first: NonNull<u8>, bytes: usize) -> Self {
        let found = all().iter().find_map(|managed| managed.heap.region_of(first, bytes));
        match found {
            Some((region, range)) => Memory::Managed(region, range),
            None => Memory::Other(first.as_ptr() as usize, bytes),
        }
    }

    /// Makes one system call for the memory from its byte `done` on.
    ///
    /// # Safety
    /// The memory lives; where it is written, it may be.
    unsafe fn step(&self, direction: Direction, file: BorrowedFd<'_>, done: usize) -> io::Result<usize> {
        match self {
            Memory::Managed(region, range) => {
                let range = range.start + done..range.end;
                let result = match direction {
                    // SAFETY: Python has no slices; its threads see old or new bytes.
                    Direction::Read => unsafe { region.read_some_from(file, range) },
                    Direction::Write => region.write_some_to(file, range),
                };
                result.map_err(|error| match error {
                    Error::Transfer { errno, .. } => errno.into(),
                    other => io::Error::other(other),
                })
            }
            Memory::Other(first, bytes) => {
                let (first, bytes) = ((first + done) as *mut libc::c_void, (bytes - done).min(PIECE_BYTES));
                let file = std::os::fd::AsRawFd::as_raw_fd(&file);
                // SAFETY: the caller vouches for the memory.
                let result = unsafe {
                    match direction {
                        Direction::Read => libc::read(file, first, bytes),
                        Direction::Write => libc::write(file, first, bytes),
                    }
                };
                usize::try_from(result).map_err(|_| io::Error::last_os_error())
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Memory::Managed(_, range) => range.len(),
            Memory::Other(_, bytes) => *bytes,
        }
    }
}

/// Reads from a descriptor into a buffer ("read"), until it is full or the descriptor is at its
/// end, or writes the buffer ("write"). Returns the number of bytes. OSError where the system call
/// fails; the descriptor's position tells how far it came.
#[pyfunction]
pub(crate) fn transfer(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    file: RawFd,
    direction: &str,
) -> PyResult<usize> {
    let direction = match direction {
        "read" => Direction::Read,
        "write" => Direction::Write,
        other => return Err(PyValueError::new_err(format!("no direction: {other:?}"))),
    };
    if file < 0 {
        return Err(PyOSError::new_err((libc::EBADF, "a negative descriptor")));
    }
    let (buffer, first, bytes) = memory(object)?;
    if direction == Direction::Read && buffer.readonly() {
        return Err(PyBufferError::new_err("the memory is read-only: give one that can be written"));
    }
    let address = first.as_ptr() as usize;
    let memory = py.detach(|| {
        let first = NonNull::new(address as *mut u8).expect("an address of a buffer");
        Memory::of(first, bytes)
    });
    let mut done = 0;
    while done < memory.bytes() {
        let result = py.detach(|| {
            // SAFETY: the descriptor is only passed to system calls, and a number that is none is
            // EBADF. The view of the buffer keeps the memory.
            unsafe { memory.step(direction, BorrowedFd::borrow_raw(file), done) }
        });
        match result {
            Ok(0) if direction == Direction::Read => break,
            Ok(0) => return Err(PyOSError::new_err((libc::EIO, "a write took no bytes"))),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(raise(error)),
        }
        // Handlers of Python run here, so that Ctrl-C ends a long transfer.
        py.check_signals()?;
    }
    drop(buffer);
    Ok(done)
}

/// Returns the exception of a failed step.
fn raise(error: io::Error) -> PyErr {
    match error.downcast::<Error>() {
        Ok(error) => exception(error),
        // Python makes PermissionError, BlockingIOError and the others of the number.
        Err(error) => PyOSError::new_err((error.raw_os_error(), error.to_string())),
    }
}

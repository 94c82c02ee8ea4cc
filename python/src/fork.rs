//! Around fork(2), by `os.register_at_fork`: a child gets a copy of what is managed.

use crate::engine::{AllLocked, Managed, lock_all};
use folioswap_heap::{Heap, Receiver, Sender};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::CString;
use std::sync::Arc;

/// What a forked child gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// A copy of everything, under a limit of its own.
    Copy,
    /// Nothing: it must not touch what is managed.
    Leave,
}

/// A heap between the two sides of fork(2). The sender borrows from the other field: it goes first.
struct Pending {
    sender: Sender<'static>,
    receiver: Receiver,
    managed: Arc<Managed>,
}

thread_local! {
    /// Held over fork(2), so that the child does not find it locked by a thread that it does not have.
    static LOCKED: RefCell<Option<AllLocked>> = const { RefCell::new(None) };
    /// All hooks run in the thread that forks, which is the one that the child has.
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(text.replace('\0', ""))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)
}

/// Before: holds the heaps' locks.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) -> PyResult<()> {
    let (all, locked) = lock_all();
    LOCKED.set(Some(locked));
    for managed in all {
        if !managed.heap.is_at_home() {
            continue;
        }
        let heap: *const Heap = &raw const managed.heap;
        // SAFETY: the sender borrows from `managed`, which goes with it and after it.
        match Sender::prepare(unsafe { &*heap }) {
            Ok((sender, receiver)) => {
                PENDING.with_borrow_mut(|pending| pending.push(Pending { sender, receiver, managed }));
            }
            Err(error) => {
                warn(py, &format!("the forked process gets no copy of folioswap's memory: {error}"))?
            }
        }
    }
    Ok(())
}

/// After, in the parent: sends, and waits. The interpreter's lock is kept, so that no other thread's Python code changes what is sent.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    LOCKED.take();
    for Pending { sender, receiver, managed } in PENDING.take() {
        if managed.recipe.fork == Policy::Copy {
            // An error is the child's end, or that there is none; it says so itself.
            let _ = sender.send(receiver);
        } else {
            drop(sender);
        }
        drop(managed);
    }
}

/// After, in the child: makes a swap of its own, and takes what comes.
#[pyfunction]
pub(crate) fn after_fork_in_child(py: Python<'_>) -> PyResult<()> {
    LOCKED.take();
    for Pending { sender, receiver, managed } in PENDING.take() {
        if managed.recipe.fork == Policy::Leave {
            drop(sender);
            continue;
        }
        if let Err(error) = receiver.receive(sender, || managed.recipe.make()) {
            warn(
                py,
                &format!(
                    "this forked process has no copy of folioswap's memory and must not touch it: {error}"
                ),
            )?;
        }
    }
    Ok(())
}

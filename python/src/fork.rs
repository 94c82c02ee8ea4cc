//! The hooks of `os.register_at_fork`: a forked child gets a copy of managed memory.

use crate::engine::{AllLocked, Managed, lock_all};
use folioswap_heap::{Heap, Receiver, Sender};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::CString;
use std::sync::Arc;

/// The memory that a forked child gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkPolicy {
    /// A copy of everything, under a limit of its own.
    Copy,
    /// Nothing: the child must not touch managed memory.
    Leave,
}

/// A heap between the two sides of fork(2). The sender borrows from `managed`, and is declared and
/// dropped before it.
struct Pending {
    sender: Sender<'static>,
    receiver: Receiver,
    managed: Arc<Managed>,
}

thread_local! {
    /// Held over fork(2), so that the child does not find it locked by a thread that it does not
    /// have.
    static LOCKED: RefCell<Option<AllLocked>> = const { RefCell::new(None) };
    /// All hooks run in the forking thread, which is the only one that the child has.
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(text.replace('\0', ""))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)
}

/// The hook before a fork: takes the heaps' locks.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) -> PyResult<()> {
    let (all, locked) = lock_all();
    LOCKED.set(Some(locked));
    for managed in all {
        if !managed.heap.is_at_home() {
            continue;
        }
        let heap: *const Heap = &raw const managed.heap;
        // SAFETY: the sender borrows from `managed`, which is kept beside it and dropped after it.
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

/// The hook after a fork, in the parent: sends the copy, and waits. The interpreter's lock is kept,
/// so that no Python code of other threads changes the memory meanwhile.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    LOCKED.take();
    for Pending { sender, receiver, managed } in PENDING.take() {
        if managed.recipe.fork == ForkPolicy::Copy {
            // An error means that the child ended or does not exist. The child reports its own
            // failure.
            let _ = sender.send(receiver);
        } else {
            drop(sender);
        }
        drop(managed);
    }
}

/// The hook after a fork, in the child: makes a swap of its own, and receives the copy.
#[pyfunction]
pub(crate) fn after_fork_in_child(py: Python<'_>) -> PyResult<()> {
    LOCKED.take();
    for Pending { sender, receiver, managed } in PENDING.take() {
        if managed.recipe.fork == ForkPolicy::Leave {
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

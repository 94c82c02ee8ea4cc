//! The system-call gate, where no event tells the pager of forks: it makes them.
//!
//! The gate stands before every call of the program, so forks are seen that are not made by the C
//! library. Its own object's calls pass, since hooks and interposed functions make theirs.

use crate::start::engine;
use folioswap_gate::{dispatch, hooks};
use folioswap_pager::fork::protocol::{self as fork, Made, Stack};
use folioswap_pager::kernel::image;

/// Puts the gate before the calls of the process, which has one thread.
///
/// # Errors
/// The errno of what the kernel, or a filter of the program's, does not allow.
pub fn arm() -> Result<(), u16> {
    hooks::BEFORE_FORK.set(before_fork);
    hooks::FORK_PARENT.set(after_fork);
    hooks::FORK_CHILD.set(in_child);
    let text = image::text();
    dispatch::let_through(text.start as u64..text.end as u64);
    dispatch::arm().map_err(|errno| errno.0)
}

extern "C" fn before_fork() {
    if let Some(engine) = engine() {
        // Where no slot of the gate's was free, this is the program's stack.
        let here = 0u8;
        let own = image::range();
        let is_own = (own.start..own.end).contains(&(&raw const here as usize));
        fork::prepare(engine, if is_own { Stack::OfGate } else { Stack::OfProgram });
    }
}

extern "C" fn after_fork(answer: i64) {
    if let Some(engine) = engine() {
        let child = u32::try_from(answer).map_or(Made::Nothing, Made::Child);
        fork::parent(engine, child);
    }
}

extern "C" fn in_child() {
    if let Some(engine) = engine() {
        // SAFETY: the gate calls this first in the child, whose only thread this is. Where the C
        // library has called us before the fork, that was for this one too.
        unsafe { fork::child(engine) };
    }
}

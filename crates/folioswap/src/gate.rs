//! System calls on regions, where the kernel tells of no faults of theirs: the gate stands inside
//! the program, and calls of the C library bring in and hold what they use of a region.
//!
//! It is put there once for the process, with the first swap that needs it, and stays. The set of
//! regions is the process's; each engine asks the same gate before it takes pages.

use crate::Region;
use folioswap_pager::engine::holds::Gate as Calls;

/// Whether the library may stand before the system calls of the process.
///
/// Without privilege userfaultfd serves the faults of user mode alone. The *gate* then makes
/// read(2) into a region, write(2) from it, and all other calls of the C library work: its code is
/// changed in memory, once, so that each call brings in what it uses of a region and holds it
/// until it returns.
///
/// * Threads that wait in a call while the first swap is made may find EINTR, as by a signal.
/// * Calls that do not come from the C library are not served: a program's own `syscall`
///   instructions, rustix without its feature `use-libc`, io_uring, AIO of the kernel; nor are the
///   words of an exec. They fail with EFAULT where memory is away, never with wrong bytes. A second
///   copy of the library in the process serves none.
/// * The first swap takes some 30 ms more, and a call some 200 ns. Nothing is undone when the last
///   swap ends.
/// * With glibc 2.41 or later a thread that is cancelled in a call (pthread_cancel) ends when the
///   call does.
///
/// ```
/// use folioswap::{Gate, Swap};
///
/// let swap = Swap::builder().limit("64M").gate(Gate::Never).build()?;
/// # drop(swap);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gate {
    /// Where the kernel serves no faults of system calls; else nothing is changed. The environment
    /// variable `FOLIOSWAP_GATE` can say `never`, or `always`.
    #[default]
    Auto,
    /// Also where it does: then calls work on regions of [`FaultMode::Sigbus`] too.
    ///
    /// [`FaultMode::Sigbus`]: crate::FaultMode::Sigbus
    Always,
    /// The process stays as it is.
    Never,
}

impl Gate {
    /// What is meant, with the environment's word for it.
    pub(crate) fn chosen(self) -> Gate {
        match (self, std::env::var("FOLIOSWAP_GATE").as_deref()) {
            (Gate::Auto, Ok("never")) => Gate::Never,
            (Gate::Auto, Ok("always")) => Gate::Always,
            (chosen, _) => chosen,
        }
    }
}

/// Puts the gate before the calls of the process, unless it is there. `None`: calls cannot be
/// served here, and nothing is changed.
pub(crate) fn stand() -> Option<&'static Calls> {
    inside::stand()
}

/// Lets calls know of the limit of a swap, of which they may hold a part.
pub(crate) fn limit(bytes: u64) {
    inside::limit(bytes);
}

/// Lets calls know of a region, before its memory may be away.
pub(crate) fn begin(region: &Region, start: usize, end: usize) {
    if region.inner.calls_hold() {
        inside::begin(start, end);
    }
}

/// Lets calls forget a region that is about to be unmapped.
pub(crate) fn end(region: &Region, start: usize, end: usize) {
    if region.inner.calls_hold() {
        inside::end(start, end);
    }
}

// The gate saves the SSE registers alone, so it is not compiled where the compiler uses AVX.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(target_feature = "avx"))))]
mod inside {
    use super::Calls;

    pub(super) fn stand() -> Option<&'static Calls> {
        None
    }

    pub(super) fn limit(_bytes: u64) {}

    pub(super) fn begin(_start: usize, _end: usize) {}

    pub(super) fn end(_start: usize, _end: usize) {}
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(target_feature = "avx")))]
mod inside;

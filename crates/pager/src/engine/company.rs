//! Whether other threads of the program run besides the thread that faults, judged by their CPU
//! clocks.
//!
//! Other threads need the other CPU; where there are none, that CPU may be kept from sleeping
//! (`docs/decisions/0024-placement-and-vigil.md`). The clock of a process does not show at once a
//! thread that is running on another CPU: not before the next tick there, of 1 to 10 ms. So several
//! ticks are awaited.

use crate::kernel::process;

/// Other threads run if they have had one part in this many of the time between two judgements.
const PARTS: u64 = 8;

/// A judgement holds for this long: a few ticks.
const JUDGED_NS: u64 = 12_000_000;

/// After this long without a look, a judgement says nothing of the present.
const OLD_NS: u64 = 60_000_000;

/// The result of the looks at the clocks.
#[derive(Debug, Default)]
pub(crate) struct Company {
    /// The thread whose company is judged.
    thread: u32,
    /// The time of the last judgement.
    at_ns: u64,
    /// The time for which all other threads had run by then.
    others_ns: u64,
    found: Found,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Found {
    /// Other threads run, or it is not known.
    #[default]
    Some,
    /// Other threads had run for no time to speak of since the judgement before.
    None,
}

impl Company {
    /// Judges at time `now`, where a new judgement is due. `others_ns`, called only then, returns
    /// for how long all threads but `thread` have run, or `None` where nobody can tell.
    pub(crate) fn look(&mut self, thread: u32, now: u64, others_ns: impl FnOnce() -> Option<u64>) {
        let since_ns = now.saturating_sub(self.at_ns);
        if self.thread == thread && since_ns < JUDGED_NS {
            return;
        }
        let Some(others_ns) = others_ns() else { return };
        let ran_ns = others_ns.saturating_sub(self.others_ns);
        let is_known = self.thread == thread && since_ns < OLD_NS;
        let was_absent = is_known && ran_ns.saturating_mul(PARTS) < since_ns;
        let found = if was_absent { Found::None } else { Found::Some };
        *self = Company { thread, at_ns: now, others_ns, found };
    }

    /// Whether `thread` is the only thread that runs.
    pub(crate) fn is_absent(&self, thread: u32) -> bool {
        self.thread == thread && self.found == Found::None
    }

    #[cfg(test)]
    pub(crate) fn none_for(thread: u32) -> Self {
        // A new judgement is never due.
        Company { thread, at_ns: u64::MAX, others_ns: 0, found: Found::None }
    }
}

/// Nanoseconds for which all threads of the program have run, except `thread`, which has run for
/// `its_ns`. `None` if it has ended. Cost: a system call.
pub(crate) fn others_cpu_ns(program: u32, its_ns: u64) -> Option<u64> {
    Some(process::cpu_ns(program)?.saturating_sub(its_ns))
}

#[cfg(test)]
mod tests;

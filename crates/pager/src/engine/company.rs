//! Whether other threads of the program run besides the one that faults: by their CPU clocks.
//!
//! They need the other CPU; where there are none, it may be kept from sleeping (`docs/design.md` section 7). The clock of a process
//! does not tell at once of a thread that runs just now on another CPU: not before the next tick there, of 1 to 10 ms. So several are waited for.

use crate::kernel::sys;

/// Others run if they have had one part in this many of the time between two judgements.
const PARTS: u64 = 8;

/// What was found holds for so long: a few ticks.
const JUDGED_NS: u64 = 12_000_000;

/// After so long without a look it says nothing of now.
const OLD_NS: u64 = 60_000_000;

/// What the looks at the clocks have said.
#[derive(Debug, Default)]
pub(crate) struct Company {
    /// Whose company it is.
    thread: u32,
    /// When it was judged last.
    at_ns: u64,
    /// For how long all others had run then.
    others_ns: u64,
    found: Found,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Found {
    /// Others run, or nobody knows.
    #[default]
    Some,
    /// None had run to speak of since the judgement before.
    None,
}

impl Company {
    /// At `now`. For how long all threads but `thread` and the pager's had run by then, `others_ns` says, where it is time to judge.
    pub(crate) fn look(&mut self, thread: u32, now: u64, others_ns: impl FnOnce() -> u64) {
        let since_ns = now.saturating_sub(self.at_ns);
        if self.thread == thread && since_ns < JUDGED_NS {
            return;
        }
        let others_ns = others_ns();
        let ran_ns = others_ns.saturating_sub(self.others_ns);
        let is_known = self.thread == thread && since_ns < OLD_NS;
        let was_absent = is_known && ran_ns.saturating_mul(PARTS) < since_ns;
        let found = if was_absent { Found::None } else { Found::Some };
        *self = Company { thread, at_ns: now, others_ns, found };
    }

    /// Is `thread` the only one that runs?
    pub(crate) fn is_absent(&self, thread: u32) -> bool {
        self.thread == thread && self.found == Found::None
    }

    #[cfg(test)]
    pub(crate) fn none_for(thread: u32) -> Self {
        // It is never time to judge again.
        Company { thread, at_ns: u64::MAX, others_ns: 0, found: Found::None }
    }
}

/// Nanoseconds for which all threads of this process have run but for `thread`, the calling handler, and the evictor. Cost: four system
/// calls, some 3 us.
pub(crate) fn others_cpu_ns(thread: u32, evictor: u32) -> u64 {
    let ours = if evictor == thread { 0 } else { evictor };
    let theirs = [thread, ours].map(|thread| sys::cpu_ns_of(thread).unwrap_or(0));
    sys::process_cpu_ns().saturating_sub(sys::thread_cpu_ns() + theirs.iter().sum::<u64>())
}

#[cfg(test)]
mod tests;

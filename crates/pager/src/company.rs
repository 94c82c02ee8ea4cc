//! Whether other threads of the program run besides the one that faults: by their CPU clocks.
//!
//! They need the other CPU; where there are none, it may be kept from sleeping (`docs/design.md` section 7).

use crate::sys;

/// Others run if they have had one part in this many of the time between two looks.
const PARTS: u64 = 8;

/// What the last look at the clocks has said.
#[derive(Debug, Default)]
pub(crate) struct Company {
    /// Whose company it is.
    thread: u32,
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
    /// None had run to speak of since the look before.
    None,
}

impl Company {
    /// At `now`, when all threads but `thread` and the pager's had run for `others_ns`.
    pub(crate) fn look(&mut self, thread: u32, others_ns: u64, now: u64) {
        let ran_ns = others_ns.saturating_sub(self.others_ns);
        let was_absent =
            self.thread == thread && ran_ns.saturating_mul(PARTS) < now.saturating_sub(self.at_ns);
        let found = if was_absent { Found::None } else { Found::Some };
        *self = Company { thread, at_ns: now, others_ns, found };
    }

    /// Is `thread` the only one that runs?
    pub(crate) fn is_absent(&self, thread: u32) -> bool {
        self.thread == thread && self.found == Found::None
    }

    #[cfg(test)]
    pub(crate) fn none_for(thread: u32) -> Self {
        Company { thread, found: Found::None, ..Default::default() }
    }
}

/// Nanoseconds for which all threads of this process have run but for `thread`, the calling handler, and the evictor. Cost: four system
/// calls, some 3 us.
pub(crate) fn others_cpu_ns(thread: u32, evictor: u32) -> u64 {
    let theirs = [thread, evictor].map(|thread| sys::cpu_ns_of(thread).unwrap_or(0));
    sys::process_cpu_ns().saturating_sub(sys::thread_cpu_ns() + theirs.iter().sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ran_alone_since_the_last_look_has_no_company() {
        let mut company = Company::default();
        let mut look = |thread, others_ns, now| {
            company.look(thread, others_ns, now);
            company.is_absent(thread) && !company.is_absent(thread + 1)
        };
        assert!(!look(7, 500, 10_000), "nothing is known at the first look");
        assert!(look(7, 500 + 999, 18_000));
        assert!(!look(7, 1499 + 1000, 26_000), "an eighth");
        assert!(look(7, 2499, 34_000));
        assert!(!look(8, 2499, 42_000), "another thread");
        assert!(!look(7, 2499, 50_000));
        assert!(
            look(7, 100, 58_000),
            "a clock that goes back, since a thread has ended between two readings"
        );
    }

    #[test]
    fn what_the_threads_named_have_run_for_is_left_out() {
        /// No thread: the kernel's numbers end at 2^22.
        const NOBODY: u32 = 1 << 23;
        const RUNS_NS: u64 = 20_000_000;
        let (told, tells) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            while sys::thread_cpu_ns() < RUNS_NS {}
            told.send(sys::gettid()).unwrap();
            let _ = ended.recv();
        });
        let thread = tells.recv().unwrap();
        assert!(sys::cpu_ns_of(thread).unwrap() >= RUNS_NS);
        assert_eq!(sys::cpu_ns_of(NOBODY), None);
        for (named, evictor) in [(thread, NOBODY), (NOBODY, thread)] {
            let without = others_cpu_ns(named, evictor);
            assert!(sys::process_cpu_ns() - without >= RUNS_NS);
        }
        let with = others_cpu_ns(NOBODY, NOBODY);
        assert!(with >= RUNS_NS);
        drop(end);
        other.join().unwrap();
    }
}

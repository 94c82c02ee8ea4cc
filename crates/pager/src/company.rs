//! Whether other threads of the program run besides the one that faults: by their CPU clocks.
//!
//! They need the other CPU; where there are none, it may be kept from sleeping (`docs/design.md` section 7). The clock of a process
//! does not tell at once of a thread that runs just now on another CPU: not before the next tick there, of 1 to 10 ms. So several are waited for.

use crate::sys;

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
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use core::time::Duration;

    #[test]
    fn who_ran_alone_since_the_last_look_has_no_company() {
        let mut company = Company::default();
        let mut look = |thread, others_ns, ms: u64| {
            company.look(thread, ms * 1_000_000, || others_ns);
            company.is_absent(thread) && !company.is_absent(thread + 1)
        };
        assert!(!look(7, 500, 100), "nothing is known at the first look");
        assert!(!look(7, 500, 111), "too soon to tell");
        assert!(look(7, 500 + 1_999_999, 116));
        assert!(look(7, 900_000_000, 127), "what was found holds for a while");
        assert!(!look(7, 2_000_499 + 2_000_000, 132), "an eighth");
        assert!(look(7, 4_000_499, 148));
        assert!(!look(8, 4_000_499, 164), "another thread");
        assert!(!look(7, 4_000_499, 180));
        assert!(look(7, 100, 196), "a clock that goes back, since a thread has ended between two readings");
        assert!(!look(7, 100, 256), "long ago");
    }

    /// The clock of the process alone does not know of it before a tick.
    #[test]
    fn who_runs_without_a_break_is_noticed_however_often_is_looked() {
        let (told, tells) = std::sync::mpsc::channel();
        let ends = std::sync::Arc::new(AtomicBool::new(false));
        let until = ends.clone();
        let busy = std::thread::spawn(move || {
            told.send(()).unwrap();
            while !until.load(Relaxed) {
                core::hint::spin_loop();
            }
        });
        tells.recv().unwrap();
        let (mut company, thread) = (Company::default(), sys::gettid());
        let began = sys::now_ns();
        let mut looks = 0;
        while sys::now_ns() - began < 150_000_000 {
            company.look(thread, sys::now_ns(), || others_cpu_ns(thread, 0));
            assert!(!company.is_absent(thread), "look {looks}");
            looks += 1;
            std::thread::sleep(Duration::from_micros(150));
        }
        ends.store(true, Relaxed);
        busy.join().unwrap();
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

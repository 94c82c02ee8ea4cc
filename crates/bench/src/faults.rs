//! Did a touch have to wait for a page to be decompressed or read from a device? Counted, not guessed from how long it took.

use std::time::{Duration, Instant};

/// How long a served fault's figures are waited for: they are written just after the thread has been let go on.
const FIGURES_COME: Duration = Duration::from_millis(5);

/// What an engine that serves faults itself counts of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Faults so far.
    pub faults: u64,
    /// Of these, those that read the store: compressed memory or a device.
    pub from_store: u64,
}

/// The figures of an engine that serves this process's faults, which the kernel's own counters cannot tell apart: for those a page that only waited,
/// uncompressed, was absent as well.
pub trait Engine {
    /// So far. Cost: it is asked after every touch that faulted, and should take less than a microsecond.
    fn served(&self) -> Served;
}

/// What a touch met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// The page, or a fault too small for the thread's counters to see.
    Nothing,
    /// A fault for which nothing had to be decompressed or read.
    Fault,
    /// A fault for which something was.
    Store,
    /// A fault that the engine's figures did not show in time. Whoever counts should take it for [`Met::Store`].
    Unclear,
}

/// Tells what each touch of the calling thread met.
pub struct Witness<'a> {
    engine: Option<&'a dyn Engine>,
    faults: [u64; 2],
    served: Served,
}

impl<'a> Witness<'a> {
    /// From now on. Without an engine the kernel serves all faults.
    pub fn new(engine: Option<&'a dyn Engine>) -> Witness<'a> {
        let mut witness = Witness { engine, faults: [0; 2], served: Served::default() };
        witness.begin();
        witness
    }

    /// What happened before does not count. Call it before the first of several touches. Where figures of an earlier fault come later than this, the next
    /// fault is taken for that one.
    pub fn begin(&mut self) {
        self.faults = faults_of_thread();
        self.served = self.engine.map(Engine::served).unwrap_or_default();
    }

    /// What the thread met since it was last asked, or since [`begin`](Self::begin): one touch. Cost: a system call (getrusage), and up to 5 ms after a
    /// fault whose figures do not come.
    pub fn met(&mut self) -> Met {
        let faults = faults_of_thread();
        let [minor, major] = [0, 1].map(|which| faults[which] - self.faults[which]);
        self.faults = faults;
        if minor + major == 0 {
            return Met::Nothing;
        }
        let Some(engine) = self.engine else {
            return if major > 0 { Met::Store } else { Met::Fault };
        };
        let begin = Instant::now();
        loop {
            let served = engine.served();
            if served.faults != self.served.faults {
                let from_store = served.from_store != self.served.from_store;
                self.served = served;
                return if from_store { Met::Store } else { Met::Fault };
            }
            if begin.elapsed() > FIGURES_COME {
                return Met::Unclear;
            }
            std::hint::spin_loop();
        }
    }
}

/// Minor and major faults of the calling thread so far.
fn faults_of_thread() -> [u64; 2] {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes the structure, for which all-zero is valid should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_minflt as u64, usage.ru_majflt as u64]
}

#[cfg(test)]
mod tests;

//! Tells from counters, not from latencies, whether a touch had to wait for a page to be
//! decompressed or read from a device.

use std::time::{Duration, Instant};

/// How long the figures of a served fault are waited for: they are written just after the thread
/// was let go on.
const FIGURES_COME: Duration = Duration::from_millis(5);

/// The counts of an engine that serves faults itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Faults so far.
    pub faults: u64,
    /// Faults that read the store, that is, compressed memory or a device.
    pub from_store: u64,
}

/// The counts of the engine that serves this process's faults. The kernel's own counters cannot
/// tell them apart: for the kernel a page that waited uncompressed was absent as well.
pub trait Engine {
    /// Reads the counts so far. Cost: called after every touch that faulted, so it should take less
    /// than a microsecond.
    fn served(&self) -> Served;
}

/// The outcome of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOutcome {
    /// No fault, or one too small for the thread's counters to show.
    NoFault,
    /// A fault that needed neither decompression nor a device.
    Fault,
    /// A fault that read the store.
    Store,
    /// A fault that the engine's figures did not show in time. Count it as [`TouchOutcome::Store`].
    Unclear,
}

/// Tells the outcome of each touch of the calling thread.
pub struct FaultWitness<'a> {
    engine: Option<&'a dyn Engine>,
    faults: [u64; 2],
    served: Served,
}

impl<'a> FaultWitness<'a> {
    /// Begins to count. Without an engine the kernel serves all faults.
    pub fn new(engine: Option<&'a dyn Engine>) -> FaultWitness<'a> {
        let mut witness = FaultWitness { engine, faults: [0; 2], served: Served::default() };
        witness.begin();
        witness
    }

    /// Forgets earlier faults; call it before the first of several touches. Figures of an earlier
    /// fault that come only after this call are taken for those of the next fault.
    pub fn begin(&mut self) {
        self.faults = faults_of_thread();
        self.served = self.engine.map(Engine::served).unwrap_or_default();
    }

    /// The outcome of one touch: of the time since the last call, or since [`begin`](Self::begin).
    /// Cost: a system call (getrusage), and up to 5 ms after a fault whose figures do not come.
    pub fn outcome(&mut self) -> TouchOutcome {
        let faults = faults_of_thread();
        let [minor, major] = [0, 1].map(|which| faults[which] - self.faults[which]);
        self.faults = faults;
        if minor + major == 0 {
            return TouchOutcome::NoFault;
        }
        let Some(engine) = self.engine else {
            return if major > 0 { TouchOutcome::Store } else { TouchOutcome::Fault };
        };
        let begin = Instant::now();
        loop {
            let served = engine.served();
            if served.faults != self.served.faults {
                let from_store = served.from_store != self.served.from_store;
                self.served = served;
                return if from_store { TouchOutcome::Store } else { TouchOutcome::Fault };
            }
            if begin.elapsed() > FIGURES_COME {
                return TouchOutcome::Unclear;
            }
            std::hint::spin_loop();
        }
    }
}

/// Minor and major faults of the calling thread so far.
fn faults_of_thread() -> [u64; 2] {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes the structure, for which all-zero is valid should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_minflt as u64, usage.ru_majflt as u64]
}

#[cfg(test)]
mod tests;

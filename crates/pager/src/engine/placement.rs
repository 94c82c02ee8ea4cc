//! The CPUs of the pager threads: the handler runs on the CPU of the thread whose faults it serves,
//! the evictor elsewhere.
//!
//! A faulting thread sleeps while it is served, so its own CPU is free at that very moment; a
//! handler that waits there takes over at once, while a handler on another, idle CPU must first
//! wake that CPU up, and wake the thread's up again afterwards (ten times the time of the whole
//! fault in a virtual machine). The scheduler prefers an idle CPU, so the handler sets its affinity
//! to the CPU where it wants to be, and looks now and then where the thread is. Where many threads
//! fault on several CPUs the handler lets the scheduler choose.

use crate::engine::company::{Company, others_cpu_ns};
use crate::kernel::proc::{Shown, last_cpu, read_proc, run_ns};
use crate::kernel::sys;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use rustix::fd::{AsRawFd, OwnedFd};

/// The time between two looks at the faulting thread's CPU (a look costs some microseconds): after
/// a look that found the thread elsewhere, and the longest.
const LOOK_SOON_NS: u64 = 150_000;

const LOOK_LATE_NS: u64 = 2_000_000;

/// After this many looks in a row that each found another CPU, the handler follows no thread for a
/// while.
const ASTRAY_LOOKS: u32 = 6;

const ASTRAY_NS: u64 = 20_000_000;

/// A thread that faults again within this time after it was served faults again and again.
const AGAIN_NS: u64 = 100_000;

/// On more CPUs than this an idle one is found nearly always, and the scheduler moves the thread
/// there whatever the pager does.
const FEW_CPUS: u32 = 2;

/// Words of a CPU mask, for as many CPUs as the kernel can be built for.
const MASK_WORDS: usize = 8192 / 64;

type Mask = [u64; MASK_WORDS];

/// The value of [`crate::engine::Engine::faulting_cpu`] when there is none.
pub(crate) const NO_CPU: u32 = u32::MAX;

/// The CPUs that the calling thread may run on.
struct Places {
    /// The CPUs that it was allowed to run on at first.
    everywhere: Mask,
}

impl Places {
    fn of_caller() -> Self {
        let mut everywhere = [0; MASK_WORDS];
        sys::affinity(&mut everywhere);
        Places { everywhere }
    }
    fn only(&self, cpu: u32) -> bool {
        let mut mask: Mask = [0; MASK_WORDS];
        let Some(word) = mask.get_mut(cpu as usize / 64) else { return false };
        *word = 1 << (cpu % 64);
        sys::set_affinity(&mask).is_ok()
    }
    fn without(&self, cpu: u32) -> bool {
        let mut mask = self.everywhere;
        if let Some(word) = mask.get_mut(cpu as usize / 64) {
            *word &= !(1 << (cpu % 64));
        }
        // Where there is no other CPU the mask is empty, and the kernel refuses it.
        sys::set_affinity(&mask).is_ok()
    }
    fn all(&self) -> bool {
        sys::set_affinity(&self.everywhere).is_ok()
    }
    fn count(&self) -> u32 {
        self.everywhere.iter().map(|word| word.count_ones()).sum()
    }
}

/// The placement of the handler.
pub(crate) struct HandlerPlacement {
    places: Places,
    looks: Looks,
    /// `None`: no vigil keeps other CPUs awake, so the handler does not ask which other threads
    /// run.
    company: Option<Company>,
    bound_to: u32,
    /// Looks in a row that found the thread elsewhere.
    missed: u32,
    look_after_ns: u64,
    look_next_ns: u64,
    /// The time at which a fault had been served last.
    served_ns: u64,
}

impl HandlerPlacement {
    /// The placement of the calling thread, which serves this program.
    pub(crate) fn new(program: FollowedProgram) -> Self {
        let places = Places::of_caller();
        HandlerPlacement {
            company: (places.count() <= FEW_CPUS).then(Company::default),
            places,
            looks: Looks::of(program),
            bound_to: NO_CPU,
            missed: 0,
            look_after_ns: LOOK_SOON_NS,
            look_next_ns: 0,
            served_ns: 0,
        }
    }

    /// Records that no vigil keeps other CPUs awake.
    pub(crate) fn expect_no_vigil(&mut self) {
        self.company = None;
    }

    /// Keeps no descriptor open from now on. True: a descriptor has become free.
    pub(crate) fn spare_descriptor(&mut self) -> bool {
        self.looks.keeps = Keeps::Nothing;
        self.looks.open.take().is_some()
    }

    /// Records that faults have been served, at `now`.
    pub(crate) fn note_served(&mut self, now: u64) {
        self.served_ns = now;
    }

    /// Has the calling handler follow `thread`, whose fault is about to be served at `now`, and the
    /// evictor learn from `told` which CPU to keep away from. Returns
    /// the CPU of a thread that faults again and again while no other thread of the program runs,
    /// on a machine of few CPUs: the vigil that keeps the other CPUs awake goes to sleep when a
    /// window or an eviction takes long, and is wanted again at once.
    pub(crate) fn follow(&mut self, thread: u32, told: &AtomicU32, now: u64) -> Option<u32> {
        let comes_again = now.saturating_sub(self.served_ns) < AGAIN_NS;
        if now >= self.look_next_ns {
            let cpu = self.looks.cpu_of(thread)?;
            if let Some(company) = &mut self.company {
                // A fault that waited for memory is served long after its round began.
                company.look(thread, sys::now_ns(), || self.looks.others_ns(thread));
            }
            self.go_along(cpu, thread, told);
            self.look_next_ns = now + self.look_after_ns;
        }
        (self.bound_to != NO_CPU && comes_again && self.is_alone(thread)).then_some(self.bound_to)
    }

    /// Whether no other thread of the program runs, so that the vigil keeps the other CPU awake.
    fn is_alone(&self, thread: u32) -> bool {
        self.company.as_ref().is_some_and(|company| company.is_absent(thread))
    }

    fn go_along(&mut self, cpu: u32, thread: u32, told: &AtomicU32) {
        if self.bound_to == cpu {
            self.missed = 0;
            self.look_after_ns = (self.look_after_ns * 2).min(LOOK_LATE_NS);
            return;
        }
        self.missed += 1;
        // A thread that is alone stays, now that the other CPU is awake.
        if self.missed < ASTRAY_LOOKS || self.is_alone(thread) {
            self.look_after_ns = if self.missed < ASTRAY_LOOKS { LOOK_SOON_NS } else { LOOK_LATE_NS };
            self.bound_to = if self.places.only(cpu) { cpu } else { NO_CPU };
        } else {
            self.missed = 0;
            self.look_after_ns = ASTRAY_NS;
            self.bound_to = NO_CPU;
            self.places.all();
        }
        told.store(self.bound_to, Relaxed);
    }
}

/// The placement of the evictor.
pub(crate) struct EvictorPlacement {
    places: Places,
    avoids: u32,
}

impl EvictorPlacement {
    /// The placement of the calling thread.
    pub(crate) fn new() -> Self {
        EvictorPlacement { places: Places::of_caller(), avoids: NO_CPU }
    }

    /// Leaves the faulting thread's CPU to that thread and to the handler.
    pub(crate) fn keep_away(&mut self, faulting: u32) {
        if faulting != self.avoids {
            self.avoids = faulting;
            self.leave();
        }
    }

    /// Moves the evictor to the faulting thread's CPU, for work whose invalidations of the TLBs
    /// would have to be waited for from any other CPU. False: the evictor stays.
    pub(crate) fn join(&mut self, faulting: u32) -> bool {
        faulting != NO_CPU && self.places.only(faulting)
    }

    /// Moves the evictor back to its own CPUs, also after [`EvictorPlacement::join`].
    pub(crate) fn leave(&mut self) {
        if self.avoids == NO_CPU {
            self.places.all()
        } else {
            self.places.without(self.avoids)
        };
    }
}

/// The program whose threads are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowedProgram {
    /// Its number, for clocks.
    pub(crate) number: u32,
    /// Where `/proc` shows it.
    pub(crate) shown: Shown,
}

/// The CPUs that threads of the program run on. The descriptor of the last thread stays open:
/// opening it costs more than twice as much as reading it. No other descriptor does, since a
/// program may allow itself only a handful of descriptors.
struct Looks {
    program: FollowedProgram,
    open: Option<(u32, OwnedFd)>,
    keeps: Keeps,
}

/// Whether the descriptor of the last thread stays open between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keeps {
    #[default]
    Last,
    Nothing,
}

impl Looks {
    fn of(program: FollowedProgram) -> Self {
        Looks { program, open: None, keeps: Keeps::Last }
    }

    /// The CPU that a thread of the program ran on last.
    fn cpu_of(&mut self, thread: u32) -> Option<u32> {
        let mut text = [0; 512];
        if let Some((of, file)) = &self.open
            && *of == thread
            && let Some(cpu) = last_cpu(read_proc(file.as_raw_fd(), &mut text))
        {
            return Some(cpu);
        }
        // The descriptor is another thread's, or that of a thread that has ended, whose number may
        // be another's by now.
        self.open = None;
        let file = self.open_file(thread, b"stat")?;
        let cpu = last_cpu(read_proc(file.as_raw_fd(), &mut text));
        self.open = (self.keeps == Keeps::Last).then_some((thread, file));
        cpu
    }

    /// Nanoseconds for which all threads of the program but this one have run. Cost: four system
    /// calls, some 4 us.
    fn others_ns(&self, thread: u32) -> Option<u64> {
        let file = self.open_file(thread, b"schedstat")?;
        let mut text = [0; 64];
        others_cpu_ns(self.program.number, run_ns(read_proc(file.as_raw_fd(), &mut text))?)
    }

    /// Opens a file of a thread of the program.
    fn open_file(&self, thread: u32, name: &[u8]) -> Option<OwnedFd> {
        self.program.shown.open_of_thread(thread, name).ok()
    }
}

#[cfg(test)]
mod tests;

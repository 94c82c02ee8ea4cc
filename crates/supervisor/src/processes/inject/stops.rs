//! The stops of threads that are traced.
//!
//! Where a thread of this process traces a child of it, the kernel tells of a stop whichever thread
//! asks first for any child. The one that waits for all children hands such stops over
//! ([`Stops::hand_over`]).

use crate::processes::last_error;
use rustix::{io::Errno, process::Pid};
use std::{
    collections::{HashMap, VecDeque},
    mem::MaybeUninit,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// The events of ptrace(2) that are asked for, or come by themselves.
const EVENT_EXEC: i32 = 4;
const EVENT_STOP: i32 = 128;

/// Why a traced thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has executed a file, and stands at its first instruction.
    Exec,
    /// It has made a step.
    Step,
    /// All of its process is stopped, as by Ctrl-Z.
    Group,
    /// It was interrupted, or goes on after [`Stop::Group`].
    Interrupted,
    /// A signal is about to be delivered.
    Signal(i32),
}

/// What a look finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Stopped(Stop),
    /// It runs.
    Runs,
    /// It has ended; who is to wait for it still can.
    Ended,
}

/// Looks without a pause: a thread that makes one call has stopped after some microseconds.
const LOOKS: u32 = 2000;
/// The pause between further ones.
const PAUSE: Duration = Duration::from_micros(200);

/// How long a process may take to stop again when it is traced no more.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// The threads that are traced, and the stops of each that were handed over, by si_status.
#[derive(Default)]
pub struct Stops {
    handed_over: Mutex<HashMap<u32, VecDeque<i32>>>,
    /// Processes that were stopped while they were traced, and when that was noted.
    stopped: Mutex<Vec<(u32, Instant)>>,
}

impl Stops {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, VecDeque<i32>>> {
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep the stops of threads. To be called before they are traced.
    pub(super) fn keep(&self, threads: impl IntoIterator<Item = Pid>) {
        let mut kept = self.lock();
        for thread in threads {
            kept.entry(thread.as_raw_pid() as u32).or_default();
        }
    }

    pub(super) fn forget(&self, threads: impl IntoIterator<Item = Pid>) {
        let mut kept = self.lock();
        for thread in threads {
            let left = kept.remove(&(thread.as_raw_pid() as u32)).unwrap_or_default();
            if left.into_iter().any(|status| meaning(status) == Stop::Group) {
                self.note_stopped(thread);
            }
        }
    }

    /// Notes that all of a process was stopped, as by Ctrl-Z, while it was traced.
    pub(super) fn note_stopped(&self, process: Pid) {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.push((process.as_raw_pid() as u32, Instant::now()));
    }

    /// Takes the processes that were stopped while they were traced, of which waitpid(2) does not
    /// tell any more, once they have stopped again without a tracer.
    pub fn take_stopped(&self, is_stopped: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut noted = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|(_, since)| since.elapsed() < STOP_PATIENCE);
        noted.extract_if(.., |(process, _)| is_stopped(*process)).map(|(process, _)| process).collect()
    }

    /// Takes a stop that waitpid(2) has told of, by its status; returns whether it is one of a
    /// thread that is traced here.
    pub fn hand_over(&self, thread: u32, status: i32) -> bool {
        match self.lock().get_mut(&thread) {
            Some(kept) if libc::WIFSTOPPED(status) => {
                kept.push_back(status >> 8);
                true
            }
            _ => false,
        }
    }

    /// Looks whether a traced thread has stopped, and takes the stop, but not its end.
    pub(super) fn look(&self, thread: Pid) -> Look {
        let kept = self.lock().get_mut(&(thread.as_raw_pid() as u32)).and_then(VecDeque::pop_front);
        kept.map_or_else(|| look(thread), |status| Look::Stopped(meaning(status)))
    }
}

/// Looks until a thread has stopped or ended, or it is this time.
pub(super) fn wait(mut look: impl FnMut() -> Look, until: Option<Instant>) -> Look {
    for looks in 0_u32.. {
        match look() {
            Look::Runs if until.is_some_and(|until| Instant::now() >= until) => break,
            Look::Runs if looks < LOOKS => thread::yield_now(),
            Look::Runs => thread::sleep(PAUSE),
            found => return found,
        }
    }
    Look::Runs
}

fn look(thread: Pid) -> Look {
    let wait = |flags: i32| {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        loop {
            let id = thread.as_raw_pid() as libc::id_t;
            let flags = flags | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: the call writes to the local.
            if unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), flags) } == 0 {
                // SAFETY: zeroed, and written by the kernel where something was found.
                let info = unsafe { info.assume_init() };
                // SAFETY: zeroed, or what the kernel writes for a child.
                return Some((info.si_code, unsafe { info.si_status() }, unsafe { info.si_pid() }));
            }
            if last_error() != Errno::INTR {
                return None;
            }
        }
    };
    match wait(libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT) {
        None => Look::Ended,
        Some((_, _, 0)) => Look::Runs,
        Some((libc::CLD_TRAPPED | libc::CLD_STOPPED, ..)) => match wait(libc::WSTOPPED) {
            Some((_, status, 1..)) => Look::Stopped(meaning(status)),
            // It was handed over meanwhile.
            Some(_) => Look::Runs,
            None => Look::Ended,
        },
        Some(_) => Look::Ended,
    }
}

/// What si_status means.
fn meaning(status: i32) -> Stop {
    let (signal, event) = (status & 0xff, status >> 8);
    let stops_all = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
    match event {
        EVENT_EXEC => Stop::Exec,
        EVENT_STOP if stops_all => Stop::Group,
        EVENT_STOP => Stop::Interrupted,
        _ if signal == libc::SIGTRAP => Stop::Step,
        _ => Stop::Signal(signal),
    }
}

/// A request of ptrace(2) with a number as its data.
pub(super) fn ask(request: libc::c_uint, thread: Pid, data: i64) -> Result<(), Errno> {
    // SAFETY: none of the requests with a number has the kernel touch memory of ours.
    unsafe { ask_with(request, thread, 0, data as *mut libc::c_void) }
}

/// Any request of ptrace(2), as the kernel has it: what is read goes to where `data` points.
///
/// # Safety
/// `data` must be what the request demands.
pub(super) unsafe fn ask_with(
    request: libc::c_uint,
    thread: Pid,
    address: u64,
    data: *mut libc::c_void,
) -> Result<(), Errno> {
    // SAFETY: the caller's.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, thread.as_raw_pid(), address, data) };
    if result == -1 { Err(last_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;

//! Keeps the other CPU awake while one thread of the group faults again and again.
//!
//! Such a thread sleeps during each fault, and the scheduler wakes it on an idle CPU where there is
//! one. With two CPUs that is the other one, which has halted for want of work; in a virtual
//! machine, waking a halted CPU takes several times as long as the fault itself. So a thread of the
//! supervisor polls on that CPU as long as faults come, at the lowest priority, so that any other
//! thread gets the CPU at once. The haltpoll governor does the same for the idle CPUs of a guest
//! that has it configured. The thread belongs to the supervisor and not to the member, because a
//! CPU that uses the memory of the member has to be interrupted for every page that leaves.

use crate::ipc::group_memory::GroupView;
use folioswap_group::{decisions::GroupState, group::Group, segment::Faulting};
use rustix::{
    process::setpriority_process,
    thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity},
};
use std::{
    hint::spin_loop,
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
    thread,
    time::{Duration, Instant},
};

/// The CPU may sleep after this time without a fault. A walk takes less time for a window of 64
/// pages.
const WATCH: Duration = Duration::from_micros(500);
/// The time between two looks at the faults of other members.
const LOOK: Duration = Duration::from_micros(500);
/// Other members that fault so often between two looks need the other CPU themselves.
const AGAIN: u64 = 8;
/// The time without a vigil when other members need the CPU.
const REST: Duration = Duration::from_millis(10);
/// The number of CPUs with which a vigil is of use: polling on one of more CPUs keeps none of the
/// others awake.
const CPUS: u32 = 2;

/// Starts the thread on a machine where it is of use.
pub fn start(memory: GroupView) {
    let Ok(everywhere) = sched_getaffinity(None) else { return };
    if everywhere.count() == CPUS {
        // Without the thread everything is still right, only slower.
        let _ = thread::Builder::new()
            .name("folioswap-vigil".into())
            .spawn(move || run(memory.group(), &everywhere));
    }
}

fn run(group: Group<'_>, everywhere: &CpuSet) {
    if setpriority_process(None, 19).is_err() {
        return;
    }
    let sleeps = &group.segment.header.vigil_sleeps;
    let mut rests = Duration::ZERO;
    loop {
        thread::sleep(rests);
        sleeps.store(1, Release);
        while sleeps.load(Acquire) == 1 {
            // An interrupt is no different from a wake-up: the loop looks again.
            let _ = futex::wait(sleeps, futex::Flags::empty(), 1, None);
        }
        rests = match watch(group, everywhere) {
            Ended::Quiet => Duration::ZERO,
            Ended::OthersFault => REST,
        };
    }
}

/// Why a vigil is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// No fault comes any more, or this thread cannot poll on the other CPU.
    Quiet,
    /// Threads of other members fault too, and are to have the CPU.
    OthersFault,
}

/// Polls until no fault comes any more, or until faults come of more than one member.
fn watch(group: Group<'_>, everywhere: &CpuSet) -> Ended {
    let mut watched: Option<Faulting> = None;
    let (mut seen, mut last) = (0, Instant::now());
    let mut others = Others { served: None, look: last };
    while last.elapsed() < WATCH && group.decisions.state() == GroupState::Running {
        let faulting = Faulting::unpack(group.segment.header.faulting.load(Relaxed));
        if watched != Some(faulting) {
            watched = Some(faulting);
            // A member wrote this word, so its parts may be anything.
            if faulting.cpu as usize >= CpuSet::MAX_CPU {
                return Ended::Quiet;
            }
            let mut elsewhere = *everywhere;
            elsewhere.unset(faulting.cpu as usize);
            if sched_setaffinity(None, &elsewhere).is_err() {
                return Ended::Quiet;
            }
        }
        let Some(member) = group.segment.member(faulting.member) else { return Ended::Quiet };
        let served = member.figures.faults_served();
        if served != seen {
            (seen, last) = (served, Instant::now());
        }
        if last >= others.look && others.fault(group.faults_served().saturating_sub(served), last) {
            return Ended::OthersFault;
        }
        (0..32).for_each(|_| spin_loop());
    }
    Ended::Quiet
}

/// The faults of the other members during a vigil.
struct Others {
    /// Their faults that had been served at the last look, if there was one.
    served: Option<u64>,
    /// When the next look is due.
    look: Instant,
}

impl Others {
    /// Have the other members faulted again and again since the last look, given that `served`
    /// faults of theirs have been served by now? The first look only takes note of the number.
    fn fault(&mut self, served: u64, now: Instant) -> bool {
        let before = self.served.replace(served);
        self.look = now + LOOK;
        before.is_some_and(|before| served.saturating_sub(before) >= AGAIN)
    }
}

#[cfg(test)]
mod tests;

//! Keeps the other CPU awake while one thread of the group faults again and again.
//!
//! Such a thread sleeps for each fault and wakes up again, and the scheduler wakes it up on an idle CPU where there is one. On
//! two CPUs that is the other one, halted since it has nothing to do; in a virtual machine the waking-up of a halted CPU takes
//! several times as long as the fault itself. So a thread of the supervisor watches there, at the lowest priority, as long
//! as faults come: whoever else wants that CPU has it. It is what haltpoll does for the idle CPUs of a guest, where that is
//! configured. It is a thread of the supervisor and not of the member, because a CPU on which the member's memory is in use has
//! to be interrupted for every page that leaves.

use crate::ipc::mapped::Mapped;
use folioswap_group::segment::{Faulting, GroupState, Segment};
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

/// After this time without a fault the CPU may sleep: longer than the window of a walk takes that brings 64 pages.
const WATCH: Duration = Duration::from_micros(500);
/// Between two looks at what other members do, and faults of theirs between two looks from which on they need the other CPU.
const LOOK: Duration = Duration::from_micros(500);
const AGAIN: u64 = 8;
/// For so long nobody watches then.
const REST: Duration = Duration::from_millis(10);
/// With more CPUs than these, watching on one keeps none of the others awake.
const CPUS: u32 = 2;

/// Starts the thread, where it is of use.
pub fn start(segment: Mapped) {
    let Ok(everywhere) = sched_getaffinity(None) else { return };
    if everywhere.count() == CPUS {
        // Without it all is as right, and slower.
        let _ =
            thread::Builder::new().name("folioswap-vigil".into()).spawn(move || run(&segment, &everywhere));
    }
}

fn run(segment: &Segment, everywhere: &CpuSet) {
    if setpriority_process(None, 19).is_err() {
        return;
    }
    let sleeps = &segment.header.vigil_sleeps;
    let mut rests = Duration::ZERO;
    loop {
        thread::sleep(rests);
        sleeps.store(1, Release);
        while sleeps.load(Acquire) == 1 {
            // Interrupted or woken up: looked at again.
            let _ = futex::wait(sleeps, futex::Flags::empty(), 1, None);
        }
        rests = match watch(segment, everywhere) {
            Ended::Quiet => Duration::ZERO,
            Ended::OthersFault => REST,
        };
    }
}

/// Why a watch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// No fault comes any more, or nobody can watch.
    Quiet,
    /// Threads of other members fault too: they are to have the CPU on which we watch.
    OthersFault,
}

/// Until no fault comes any more, or not of one member alone.
fn watch(segment: &Segment, everywhere: &CpuSet) -> Ended {
    let mut place: Option<Faulting> = None;
    let (mut seen, mut last) = (0, Instant::now());
    let mut others = Others { served: None, look: last };
    while last.elapsed() < WATCH && segment.header.state.load(Relaxed) == GroupState::Running as u32 {
        let faulting = Faulting::unpack(segment.header.faulting.load(Relaxed));
        if place != Some(faulting) {
            place = Some(faulting);
            let mut elsewhere = *everywhere;
            elsewhere.unset(faulting.cpu as usize);
            if sched_setaffinity(None, &elsewhere).is_err() {
                return Ended::Quiet;
            }
        }
        let Some(member) = segment.members.get(faulting.member as usize) else { return Ended::Quiet };
        let served = member.figures.faults_served();
        if served != seen {
            (seen, last) = (served, Instant::now());
        }
        if last >= others.look && others.fault(segment.faults_served().saturating_sub(served), last) {
            return Ended::OthersFault;
        }
        (0..32).for_each(|_| spin_loop());
    }
    Ended::Quiet
}

/// What the other members do meanwhile.
struct Others {
    /// Faults of theirs that had been served at the last look, if there was one.
    served: Option<u64>,
    /// When the next look is due.
    look: Instant,
}

impl Others {
    /// Have they faulted again and again since the last look, now that so many faults of theirs have been served? Not at the first look.
    fn fault(&mut self, served: u64, now: Instant) -> bool {
        let before = self.served.replace(served);
        self.look = now + LOOK;
        before.is_some_and(|before| served.saturating_sub(before) >= AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::mapped::SegmentFile;
    use folioswap_group::{counters::Counter, segment::Scope};

    /// It goes to sleep whenever no fault comes, and is woken up each time one thread faults again.
    #[test]
    fn it_watches_while_faults_come_and_sleeps_otherwise() {
        let file = SegmentFile::create().unwrap();
        let segment = &file.mapped;
        segment.initialise(1, 1 << 30, Scope::Total, []);
        let member = segment.assign(1).unwrap();
        let cpu =
            (0..CpuSet::MAX_CPU).find(|&cpu| sched_getaffinity(None).unwrap().is_set(cpu)).unwrap() as u32;
        let theirs = file.map_again().unwrap();
        let everywhere = sched_getaffinity(None).unwrap();
        thread::spawn(move || run(&theirs, &everywhere));
        let sleeps = &segment.header.vigil_sleeps;
        let asleep = || {
            while sleeps.load(Acquire) == 0 {
                thread::yield_now()
            }
        };
        for _ in 0..3 {
            asleep();
            segment.header.faulting.store(Faulting { member, cpu }.pack(), Relaxed);
            sleeps.store(0, Release);
            let _ = futex::wake(sleeps, futex::Flags::empty(), 1);
            (0..50).for_each(|_| segment.members[member as usize].figures.add(Counter::MajorFaults, 1));
        }
        asleep();
    }

    /// The first look knows nothing; later ones go by what was served since the one before.
    #[test]
    fn others_fault_where_enough_was_served_for_them_between_two_looks() {
        let now = Instant::now();
        let mut others = Others { served: None, look: now };
        assert!(!others.fault(1_000_000, now));
        assert_eq!(others.look, now + LOOK);
        assert!(!others.fault(1_000_000 + AGAIN - 1, now));
        assert!(others.fault(1_000_000 + 2 * AGAIN - 1, now));
        // One of them has ended, and its figures with it.
        assert!(!others.fault(10, now));
    }

    #[test]
    fn where_somebody_faults_is_one_word() {
        let faulting = Faulting { member: 4095, cpu: u32::MAX };
        assert_eq!(Faulting::unpack(faulting.pack()), faulting);
    }
}

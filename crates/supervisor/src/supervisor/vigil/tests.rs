use super::*;
use crate::ipc::group_memory::GroupMemory;
use folioswap_group::{counters::Counter, decisions::Scope};

/// The thread goes to sleep whenever no fault comes, and is woken each time a thread faults again.
#[test]
fn it_watches_while_faults_come_and_sleeps_otherwise() {
    let memory = GroupMemory::create().unwrap();
    let segment = memory.group().segment;
    memory.writer().initialise(1, 1 << 30, Scope::Total, []);
    let member = memory.writer().assign(segment, 1).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| sched_getaffinity(None).unwrap().is_set(cpu)).unwrap() as u32;
    let theirs = memory.map_again().unwrap();
    let everywhere = sched_getaffinity(None).unwrap();
    thread::spawn(move || run(theirs.group(), &everywhere));
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

/// The first look knows nothing; a later one goes by the faults served since the look before.
#[test]
fn others_fault_where_enough_was_served_for_them_between_two_looks() {
    let now = Instant::now();
    let mut others = Others { served: None, look: now };
    assert!(!others.fault(1_000_000, now));
    assert_eq!(others.look, now + LOOK);
    assert!(!others.fault(1_000_000 + AGAIN - 1, now));
    assert!(others.fault(1_000_000 + 2 * AGAIN - 1, now));
    // One of the members has ended, and its figures with it.
    assert!(!others.fault(10, now));
}

#[test]
fn where_somebody_faults_is_one_word() {
    let faulting = Faulting { member: 4095, cpu: u32::MAX };
    assert_eq!(Faulting::unpack(faulting.pack()), faulting);
}

/// Members write the word, and a hostile one writes anything.
#[test]
fn a_cpu_or_a_member_that_cannot_be_is_passed_over() {
    let memory = GroupMemory::create().unwrap();
    let group = memory.group();
    memory.writer().initialise(1, 1 << 30, Scope::Total, []);
    let everywhere = sched_getaffinity(None).unwrap();
    for (member, cpu) in [(0, CpuSet::MAX_CPU as u32), (0, u32::MAX), (u32::MAX, 0)] {
        let faulting = Faulting { member, cpu };
        group.segment.header.faulting.store(faulting.pack(), Relaxed);
        assert_eq!(watch(group, &everywhere), Ended::Quiet);
    }
}

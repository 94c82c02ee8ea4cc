//! Members that report what is not so, and that ask for all there is: CMD is this test program
//! itself, which plays the role that `FAKE_MEMBER` names. The supervisor looks for itself.

mod supervisor_support;

use folioswap_group::{
    counters::{Counter, Gauge},
    devices::DeviceUsage,
    protocol::{Kind, Lost, Message, Note, OutOfMemory, SwapoffEnd},
    segment::CLUSTER_BYTES,
};
use folioswap_supervisor::processes::proc;
use folioswap_test_support::skipping;
use rustix::mm::{MapFlags, ProtFlags};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};
use supervisor_support::{
    members::{
        Member, answer, assert_answers, assert_closed, become_nobody, exit_status, fork, hello, is_root,
        lines, nobody, note, pair, pass, play, says, stirs, succeeds, take, userfault,
    },
    state, wait_until,
};

/// Plays the role of `FAKE_MEMBER`; in an ordinary test run it does nothing.
#[test]
fn fake_member() {
    let Ok(role) = std::env::var("FAKE_MEMBER") else { return };
    match role.as_str() {
        "alarms" => alarms(),
        "busy" => busy(),
        "liar" => liar(),
        "swapoff" => swapoff(),
        "false_errors" => false_errors(),
        "no_device" => no_device(),
        "failing_pagers" => failing_pagers(),
        "fallen" => fallen(),
        "hog" => hog(),
        "heirs" => heirs(),
        other => panic!("no role {other}"),
    }
}

fn out_of_memory(why: OutOfMemory) -> Message {
    Message::new(Kind::OutOfMemory, [why as u64, u64::MAX, u64::MAX])
}

/// A process of another user reports that memory is used up, again and again; it is not.
fn alarms() {
    let nobody = nobody(|| {
        let member = Member::join();
        for _ in 0..30 {
            for why in [OutOfMemory::SwapFull, OutOfMemory::Unmanaged] {
                member.say(&out_of_memory(why), &[]);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(member.want(1), [0], "it stays a member");
    });
    assert_eq!(exit_status(nobody), 0);
    let member = Member::join();
    member.say(&Message::new(Kind::OutOfMemory, [4, 0, 0]), &[]);
    assert_closed(&member.socket);
    assert_answers();
}

#[test]
fn a_report_alone_ends_no_group() {
    let (run, status, text) = play("alarms", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(run.stats()["end"], "exited");
    assert_eq!(text, "", "and says nothing");
}

/// The group is above its limit, and serves faults.
fn busy() {
    let member = Member::join();
    let _memory = member.fill(80 << 20);
    let nobody = nobody(|| {
        let member = Member::join();
        for _ in 0..40 {
            member.say(&out_of_memory(OutOfMemory::SwapFull), &[]);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let figures = &member.group.segment.members[member.id as usize].figures;
    for _ in 0..450 {
        figures.add(Counter::MinorFaults, 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(exit_status(nobody), 0);
}

#[test]
fn a_group_that_goes_on_at_its_limit_is_ended_by_no_report() {
    succeeds("busy", &[]);
}

/// A member publishes memory that it does not have.
fn liar() {
    let member = Member::join();
    let entry = &member.group.segment.members[member.id as usize];
    entry.charge_bytes.store(u64::MAX, Relaxed);
    entry.figures.set(Gauge::MemUsedTotal, u64::MAX);
    for _ in 0..45 {
        member.say(&out_of_memory(OutOfMemory::Unmanaged), &[]);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn memory_that_the_kernel_does_not_know_ends_no_group() {
    let (_, status, text) = play("liar", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(lines(&text, "reports that memory is used up, but"), 1, "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

fn swapoff() {
    let member = Member::join();
    assert_eq!(member.want(1), [0]);
    let asked = says(&Message::new(Kind::Swapoff, [1, 0, 0]));
    wait_until("it leaves", || member.group.decisions.devices[1].usage() == DeviceUsage::Leaving);
    let nobody = nobody(|| Member::join().say(&out_of_memory(OutOfMemory::SwapFull), &[]));
    assert_eq!(exit_status(nobody), 0);
    assert!(!stirs(&asked, 500), "it goes on");
    member.say(&Message::new(Kind::DropClusters, [1, 0, 0]).with_clusters(&[0]), &[]);
    assert_eq!(SwapoffEnd::unpack(answer(&asked).message.words), Some(SwapoffEnd::Done { lost: 0 }));
}

#[test]
fn a_swapoff_is_given_up_for_no_report_alone() {
    succeeds("swapoff", &[]);
}

/// A member reports errors of its slots by numbers that no error has.
fn false_errors() {
    let member = Member::join();
    assert_eq!(member.want(1), [0]);
    for (slot, errno) in [0, 4096, 1 << 31, u64::MAX].into_iter().enumerate() {
        member.say(&note(Note::WriteFailed, slot as u64, errno), &[]);
    }
    member.say(&note(Note::Poisoned, 0x1000, Lost::Unreadable { slot: 9, errno: 0 }.pack()), &[]);
    member.say(&note(Note::Ends, u64::MAX, u64::MAX), &[]);
    assert!(member.want(1).len() <= 1);
    assert_eq!(member.group.decisions.devices[1].errors(), 5);
}

#[test]
fn an_error_without_a_name_is_an_error_all_the_same() {
    let (_, status, text) = play("false_errors", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(lines(&text, "ends before it"), 1, "{text}");
}

/// A process commands that devices leave which nobody has added.
fn no_device() {
    for number in [2, 63, 64, u64::MAX] {
        let refused = answer(&says(&Message::new(Kind::Swapoff, [number, 0, 0]))).message;
        assert_eq!(SwapoffEnd::unpack(refused.words), Some(SwapoffEnd::NoDevice), "{number}");
    }
    assert_answers();
}

#[test]
fn a_device_that_nobody_added_cannot_leave() {
    succeeds("no_device", &[]);
}

fn failing_pagers() {
    let failing = || {
        let member = Member::join();
        (0..3).for_each(|_| member.say(&out_of_memory(OutOfMemory::PagerFailed), &[]));
        std::thread::sleep(Duration::from_secs(60));
    };
    let member = Member::join();
    for child in [nobody(failing), fork(failing)] {
        assert_eq!(exit_status(child), libc::SIGKILL, "it is ended");
    }
    assert_eq!(member.want(1), [0], "others go on");
}

#[test]
fn a_failed_pager_costs_its_own_process_and_nobody_else() {
    let (run, status, text) = play("failing_pagers", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(run.stats()["end"], "exited");
    assert_eq!(lines(&text, "the process was ended, since its memory could not be trusted"), 2, "{text}");
    assert_eq!(text.lines().count(), 2, "each is named once: {text}");
}

/// CMD gives its rights up, and then says that its pager has failed; a process of root's is left.
fn fallen() {
    fork(|| {
        // SAFETY: this child writes nothing more; who waits for the output must not wait for it.
        unsafe { (0..3).for_each(|descriptor| _ = libc::close(descriptor)) };
        std::thread::sleep(Duration::from_secs(60));
    });
    become_nobody();
    Member::join().say(&out_of_memory(OutOfMemory::PagerFailed), &[]);
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_cmd_that_became_nobody_ends_no_process_of_root() {
    if !is_root() {
        return skipping::note("only root can become another user");
    }
    let (run, status, text) = play("fallen", &[]);
    assert_eq!(status, 137, "{text}");
    assert_eq!(lines(&text, "the process was ended, since"), 1, "{text}");
    wait_until("the supervisor is left, and sleeps like the process that it looks after", || {
        run.processes().into_iter().map(state).eq(['S', 'S'])
    });
}

/// The bit of the only device.
const RAM: u64 = 1;

/// Asks for clusters until none comes; returns the bytes of all.
fn takes_all(member: &Member) -> u64 {
    let granted = std::iter::repeat_with(|| member.want_of(24, RAM).len() as u64);
    granted.take_while(|granted| *granted > 0).sum::<u64>() * CLUSTER_BYTES
}

/// The most that this process may hold.
fn may_hold() -> u64 {
    4 * proc::memory(std::process::id()).expect("alive").peak
}

fn hog() {
    let first = Member::join();
    let (here, there) = pair();
    let nobody = nobody(|| {
        let (member, uffd) = (Member::join(), userfault(None));
        let mut held = takes_all(&member);
        assert!(held > 0 && held <= may_hold(), "{held}");
        // Neither does it pay to join again, or to announce children that never come.
        let again = Member::join();
        held += takes_all(&again);
        member.say(&Message::new(Kind::Forked, [1, 2, 0]), &[&uffd]);
        held += takes_all(&member) + takes_all(&again);
        assert!(held <= may_hold(), "{held}");
        pass(&there, None);
        take(&there);
        // SAFETY: a new mapping, which nobody touches.
        unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), 64 << 20, ProtFlags::READ, MapFlags::PRIVATE)
                .expect("mmap");
        }
        let more = takes_all(&member);
        assert!(more > 0 && held + more <= may_hold(), "who has more memory may need more: {more}");
    });
    take(&here);
    assert_eq!(first.want_of(24, RAM).len(), 24, "there is enough for the others");
    pass(&here, None);
    assert_eq!(exit_status(nobody), 0);
}

/// Plays a role with more swap than two processes of this test could need.
fn with_much_swap(role: &str) {
    if folioswap_supervisor::machine::memory_bytes() < 5 << 30 {
        return skipping::note("a device of 4 GiB in memory, which nobody fills, is not allowed here");
    }
    let (_, status, text) = play(role, &["--swap", "ram,size=4G"]);
    assert_eq!(status, 0, "{text}");
}

#[test]
fn no_process_takes_all_the_swap_by_asking() {
    with_much_swap("hog");
}

/// A parent holds all that it may, and forks.
fn heirs() {
    let parent = Member::join();
    assert!(takes_all(&parent) > 0);
    let (here, there) = pair();
    let child = fork(|| {
        pass(&there, Some(&userfault(None)));
        take(&there);
        let member = Member::welcomed(hello(81));
        assert!(takes_all(&member) > 0, "what it inherited is none of its own");
        pass(&there, None);
        take(&there);
    });
    let uffd = take(&here).expect("the child's userfaultfd");
    parent.say(&Message::new(Kind::Forked, [81, 0, 0]), &[&uffd]);
    pass(&here, None);
    take(&here);
    assert!(takes_all(&parent) > 0, "nor may the parent use what both have");
    pass(&here, None);
    assert_eq!(exit_status(child), 0);
    wait_until("all of it is the parent's alone", || parent.owners(0) == 1);
    assert_eq!(takes_all(&parent), 0);
}

#[test]
fn what_a_child_inherits_is_not_counted_against_it() {
    with_much_swap("heirs");
}

//! The control protocol, spoken by fake members: CMD is this test program itself, which plays the
//! role that `FAKE_MEMBER` names.

mod supervisor_support;

use folioswap_group::{
    counters::{Counter, Gauge},
    protocol::{Ending, Kind, Message, Note, OutOfMemory, Refusal},
};
use folioswap_supervisor::ipc::wire;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsRawFd, OwnedFd},
    mm::{MapFlags, ProtFlags},
};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};
use supervisor_support::{
    Run, kill,
    members::{
        Member, answer, connect, exit_status, fork, forked, hello, pair, pass, play, succeeds, take,
        userfault,
    },
    wait_until,
};

/// Plays the role of `FAKE_MEMBER`; in an ordinary test run it does nothing.
#[test]
fn fake_member() {
    let Ok(role) = std::env::var("FAKE_MEMBER") else { return };
    match role.as_str() {
        "clusters" => clusters(),
        "killed" => killed(),
        "child_first" => child_first(),
        "parent_first" => parent_first(),
        "stillborn" => stillborn(),
        "unknown_token" => unknown_token(),
        "ends" => Member::join().say(&ends(Ending::NoTable, libc::ENOMEM), &[]),
        "orphan" => orphan(),
        "served" => served(),
        "full" => out_of_memory(OutOfMemory::SwapFull, 0, 0),
        "unmanaged" => out_of_memory(OutOfMemory::Unmanaged, 100 << 20, 120 << 20),
        "pager" => out_of_memory(OutOfMemory::PagerFailed, libc::ENOMEM as u64, 0),
        "strangers" => strangers(),
        "many" => many(),
        "abandoned" => abandoned(),
        other => panic!("no role {other}"),
    }
}

fn clusters() {
    let member = Member::join();
    assert_eq!(member.want(3), [0, 1, 2]);
    member.say(&Message::new(Kind::DropClusters, [1, 0, 0]).with_clusters(&[1]), &[]);
    assert_eq!(member.want(9), [1, 3], "the lowest first, and no more than there are");
    assert!(member.want(1).is_empty(), "full");
    assert_eq!((member.owners(1), member.owners(4)), (1, 0));
    let decisions = member.group.decisions;
    let (file, entry) = decisions.devices().nth(1).expect("the file");
    assert_eq!((file.clusters, entry.clusters_used(), entry.is_full()), (4, 4, true));
    assert_eq!(decisions.limit_bytes(), 64 << 20);
}

#[test]
fn clusters_are_granted_and_returned() {
    let run = succeeds("clusters", &["--swap-max", "8M"]);
    let device = &run.stats()["devices"][1];
    assert_eq!((&device["size_bytes"], &device["used_peak_bytes"]), (&(8 << 20).into(), &(8 << 20).into()));
}

fn killed() {
    let first = Member::join();
    assert_eq!(first.want(1), [0]);
    let (here, there) = pair();
    let child = fork(|| {
        let second = Member::join();
        assert_eq!(second.want(2), [1, 2]);
        let own = &second.group.segment.members[second.id as usize];
        let figures = &own.figures;
        figures.add(Counter::PagesOut, 5);
        figures.set(Gauge::OrigDataSize, 3 << 20);
        figures.set(Gauge::MemUsedTotal, 1 << 20);
        own.charge_bytes.store(33 << 20, Relaxed);
        pass(&there, None);
        std::thread::sleep(Duration::from_secs(60));
    });
    take(&here);
    let clusters_used = || first.group.decisions.devices[1].clusters_used();
    assert_eq!(clusters_used(), 3);
    assert!(first.group.charge_bytes() >= 33 << 20);
    kill(child, libc::SIGKILL);
    wait_until("its clusters are free", || clusters_used() == 1);
    wait_until("its place is free", || first.group.live_members().count() == 1);
    assert_eq!(first.want(1), [1]);
    exit_status(child);
}

#[test]
fn a_killed_member_frees_what_it_held_and_its_counters_stay() {
    let stats = succeeds("killed", &[]).stats();
    assert_eq!(stats["counters"]["pswpout"], 5);
    assert_eq!((&stats["members"], &stats["members_peak"]), (&2.into(), &2.into()));
    assert_eq!(stats["ratio"], 3.0);
    assert_eq!(stats["levels"]["orig_data_size"], 0);
    assert!(stats["peak_charge_bytes"].as_u64() > Some(33 << 20), "the supervisor itself counts as well");
}

fn inherits(member: &Member, first_free: u32) {
    assert!(member.userfault.is_some(), "the userfaultfd that the parent sent");
    assert_eq!((member.owners(0), member.owners(1)), (2, 2));
    assert_eq!(member.want(1), [first_free]);
}

fn child_first() {
    let parent = Member::join();
    parent.want(2);
    let (here, there) = pair();
    let child = fork(|| {
        let socket = hello(77);
        pass(&there, Some(&userfault(None)));
        let mut waiting = [PollFd::new(&socket, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 400_000_000 };
        assert_eq!(
            poll(&mut waiting, Some(&wait)).expect("poll"),
            0,
            "no answer before the parent has spoken"
        );
        pass(&there, None);
        inherits(&Member::welcomed(socket), 2);
    });
    let uffd = take(&here).expect("the child's userfaultfd");
    take(&here);
    parent.say(&forked(77), &[&uffd]);
    assert_eq!(exit_status(child), 0);
    wait_until("the child owns nothing more", || parent.owners(0) == 1 && parent.owners(2) == 0);
}

fn parent_first() {
    let parent = Member::join();
    parent.want(2);
    let (here, there) = pair();
    let child = fork(|| {
        pass(&there, Some(&userfault(None)));
        take(&there);
        let member = Member::welcomed(hello(78));
        assert_eq!((member.owners(0), member.owners(1)), (2, 2));
        assert!(member.userfault.is_some());
        // The parent lets its clusters go, and the child keeps them.
        pass(&there, None);
        wait_until("the parent let go", || member.owners(0) == 1);
        assert_eq!(member.want(1), [2], "0 is still the child's");
    });
    let uffd = take(&here).expect("the child's userfaultfd");
    parent.say(&forked(78), &[&uffd]);
    wait_until("the token owns as well", || parent.owners(0) == 2);
    pass(&here, None);
    take(&here);
    parent.say(&Message::new(Kind::DropClusters, [2, 0, 0]).with_clusters(&[0, 1]), &[]);
    assert_eq!(exit_status(child), 0);
}

fn stillborn() {
    let parent = Member::join();
    parent.want(2);
    let (here, there) = pair();
    let child = fork(|| {
        pass(&there, Some(&userfault(None)));
        std::thread::sleep(Duration::from_secs(60));
    });
    let uffd = take(&here).expect("the child's userfaultfd");
    parent.say(&forked(79), &[&uffd]);
    wait_until("the token owns as well", || parent.owners(0) == 2);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(parent.owners(0), 2, "as long as the child lives");
    kill(child, libc::SIGKILL);
    wait_until("the child's part is dropped", || parent.owners(0) == 1);
    exit_status(child);
}

fn unknown_token() {
    let (here, there) = pair();
    let parent = fork(|| {
        let _member = Member::join();
        fork(|| {
            let socket = hello(80);
            let got = answer(&socket).message;
            assert_eq!((got.kind(), got.words[0]), (Some(Kind::Refused), Refusal::UnknownToken as u64));
            pass(&there, None);
        });
        std::thread::sleep(Duration::from_millis(200));
    });
    assert_eq!(exit_status(parent), 0);
    take(&here);
}

#[test]
fn a_forked_child_may_speak_before_its_parent() {
    assert_eq!(succeeds("child_first", &[]).stats()["members"], 2);
}

#[test]
fn a_forked_child_inherits_what_its_parent_owned() {
    succeeds("parent_first", &[]);
}

#[test]
fn a_child_that_dies_before_its_hello_owns_nothing() {
    succeeds("stillborn", &[]);
}

#[test]
fn a_child_whose_parent_ended_without_a_word_is_refused() {
    let (_, status, text) = play("unknown_token", &[]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("cannot have what it inherited: its parent has ended"), "it says why: {text}");
}

fn ends(why: Ending, errno: i32) -> Message {
    Message::new(Kind::Note, [Note::Ends as u64, why as u64, errno as u64])
}

#[test]
fn a_process_that_ends_itself_is_told_of_with_its_reason() {
    let (_, status, text) = play("ends", &[]);
    assert_eq!(status, 0, "{text}");
    let why = "ends: there is no memory for the table of its pages: Cannot allocate memory";
    assert!(text.contains(why), "it says why: {text}");
}

/// A raw child of a member touches memory that no pager serves any more.
fn raw_child(server_leaves: impl FnOnce(&OwnedFd)) -> i32 {
    let (here, there) = pair();
    let (report, child_report) = pair();
    let server = fork(|| {
        let member = Member::join();
        let (mine, childs) = pair();
        fork(|| {
            let flags = MapFlags::PRIVATE;
            // SAFETY: a new anonymous mapping.
            let memory = unsafe {
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ, flags).expect("mmap")
            };
            pass(&childs, Some(&userfault(Some(memory as u64))));
            pass(&child_report, None);
            // SAFETY: reads the mapping; the fault waits for a pager.
            let value = unsafe { memory.cast::<u8>().read_volatile() };
            // The fault was served, or the child read zeroes, which it must not.
            assert_eq!(value, 0);
            pass(&child_report, None);
        });
        drop(childs);
        drop(child_report);
        let uffd = take(&mine).expect("the raw child's userfaultfd");
        member.say(&Message::new(Kind::RawForked, [0; 3]), &[&uffd]);
        take(&there);
        server_leaves(&uffd);
    });
    take(&report);
    // The raw child alone may hold the other end.
    pass(&here, None);
    let ended = exit_status(server);
    assert_eq!(ended, 0);
    report.as_raw_fd()
}

fn orphan() {
    raw_child(|_| std::thread::sleep(Duration::from_millis(100)));
    // The raw child belongs to the supervisor now, which ends it; CMD waits only long enough for
    // the message to get out.
    std::thread::sleep(Duration::from_millis(900));
}

fn served() {
    raw_child(|uffd| {
        // The fault has arrived: serve it, as the pager of the parent would.
        let mut message = [0_u8; 32];
        assert_eq!(rustix::io::read(uffd, &mut message).expect("a fault"), 32);
        let address = u64::from_ne_bytes(message[16..24].try_into().expect("8 bytes"));
        let mut zero = [address, 4096_u64, 0, 0];
        // SAFETY: UFFDIO_ZEROPAGE on the raw child's mapping.
        assert_eq!(unsafe { libc::ioctl(uffd.as_raw_fd(), 0xC020_AA04, zero.as_mut_ptr()) }, 0);
    });
    std::thread::sleep(Duration::from_millis(600));
}

#[test]
fn an_unserved_child_is_ended_instead_of_reading_zeroes() {
    let (run, status, text) = play("orphan", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("would have read zeroes")).count(), 1, "{text}");
    assert!(run.processes().is_empty());
}

#[test]
fn a_child_that_its_parent_serves_is_left_alone() {
    let (_, status, text) = play("served", &[]);
    assert_eq!(status, 0, "{text}");
    assert!(!text.contains("read zeroes"), "{text}");
}

/// A member whose pager goes away while the process lives.
fn abandoned() {
    let victim = fork(|| {
        let member = Member::join();
        // SAFETY: a new anonymous mapping.
        let memory = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE)
                .expect("mmap")
        };
        let uffd = userfault(Some(memory as u64));
        member.say(&Message::new(Kind::HoldUserfault, [0; 3]), &[&uffd]);
        std::thread::sleep(Duration::from_millis(100));
        drop((member, uffd));
        // SAFETY: reads the mapping; the fault is never served.
        unsafe { memory.cast::<u8>().read_volatile() };
    });
    assert_eq!(exit_status(victim), libc::SIGKILL, "not zeroes: the supervisor holds the userfaultfd");
}

#[test]
fn a_member_without_its_pager_is_ended_at_its_first_fault() {
    let (_, status, text) = play("abandoned", &[]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("would have read zeroes"), "{text}");
}

fn out_of_memory(why: OutOfMemory, has: u64, needs: u64) {
    let member = Member::join();
    fork(|| std::thread::sleep(Duration::from_secs(60)));
    let _memory = if why == OutOfMemory::PagerFailed { Vec::new() } else { member.fill(128 << 20) };
    member.say(&Message::new(Kind::OutOfMemory, [why as u64, has, needs]), &[]);
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn out_of_swap_is_one_message_and_137() {
    for (role, end, words) in [
        ("full", "out_of_swap", "out of swap"),
        ("unmanaged", "unmanaged_above_limit", "Give at least --memory 143M"),
        ("pager", "pager_failed", "Cannot allocate memory"),
    ] {
        let (run, status, text) = play(role, &[]);
        assert_eq!(status, 137, "{text}");
        assert_eq!(run.stats()["end"], end);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(words), "{text}");
        assert!(run.processes().is_empty());
    }
}

fn strangers() {
    // A message that no member sends, or bytes that are no message, end that connection and nothing
    // else.
    let member = Member::join();
    let rude = connect();
    wire::send(&rude, &Message::new(Kind::WantClusters, [1, 0, 0]), &[]).expect("sent");
    assert!(wire::receive(&rude).expect("closed").is_none());
    let garbage = connect();
    rustix::io::write(&garbage, b"hello").expect("sent");
    assert!(matches!(wire::receive(&garbage), Ok(None) | Err(_)));
    member.say(&Message::new(Kind::DropClusters, [1, 0, 0]).with_clusters(&[17]), &[]);
    assert_eq!(member.want(1), [0]);
}

#[test]
fn strangers_disturb_nobody() {
    succeeds("strangers", &[]);
}

fn many() {
    let first = Member::join();
    let sockets: Vec<OwnedFd> = (0..600).map(|_| hello(0)).collect();
    for socket in &sockets {
        assert_eq!(answer(socket).message.kind(), Some(Kind::Welcome));
    }
    assert_eq!(first.group.decisions.seats_in_use().len(), 601);
    drop(sockets);
    wait_until("all places are free", || first.group.live_members().count() == 1);
}

#[test]
fn hundreds_of_members_come_and_go() {
    assert_eq!(succeeds("many", &[]).stats()["members_peak"], 601);
}

#[test]
fn a_member_outside_the_tree_is_not_welcome() {
    let script = "echo \"$FOLIOSWAP_GROUP\" > \"$OUT\"; while [ ! -e \"$GO\" ]; do sleep 0.02; done";
    let mut run = Run::new(&[], &["sh", "-c", script]);
    let (out, go) = (run.file("out"), run.file("go"));
    run.command.env("OUT", &out).env("GO", &go);
    let mut child = run.spawn();
    let name = supervisor_support::text_of(&out);
    let socket = wire::connect_to(name.trim()).expect("the group's socket");
    wire::send(&socket, &Message::new(Kind::Hello, [0; 3]), &[]).expect("sent");
    assert!(wire::receive(&socket).expect("closed").is_none());
    std::fs::write(&go, "").expect("written");
    child.wait().expect("waited");
}

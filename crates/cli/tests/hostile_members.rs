//! Descendants that do what no agent does: CMD is this test program itself, which plays the role
//! that `FAKE_MEMBER` names. The supervisor goes on, and nobody else is harmed.

mod supervisor_support;

use folioswap_group::{
    decisions::Decisions,
    protocol::{Ending, Kind, Lost, Message, Note, OutOfMemory, RAW_CHILDREN_MAX},
    swap_link::{Command, Reply, Request},
};
use folioswap_supervisor::ipc::wire;
use folioswap_test_support::skipping;
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{
        FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate,
        memfd_create, open,
    },
    io::{Errno, pwrite},
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect},
    net::{RecvFlags, SendFlags, recv, send},
    pipe::pipe,
    process::{Resource, Rlimit, setrlimit},
};
use std::{
    os::unix::{net::UnixStream, process::CommandExt},
    time::{Duration, Instant},
};
use supervisor_support::{
    Run,
    members::{
        Member, answer, ask, assert_answers, assert_closed, connect, end, exit_status, fork, hello, is_root,
        lines, nobody, note, pair, pass, play, play_with, says, stirs, succeeds, take, userfault,
    },
    state, wait_until,
};

/// The slots of a cluster of 2 MiB.
const CLUSTER: u64 = 512;

/// Plays the role of `FAKE_MEMBER`; in an ordinary test run it does nothing.
#[test]
fn fake_member() {
    let Ok(role) = std::env::var("FAKE_MEMBER") else { return };
    match role.as_str() {
        "no_userfaultfd" => no_userfaultfd(),
        "forged_forks" => forged_forks(),
        "forged_fault" => forged_fault(),
        "another_users" => another_users(),
        "silence" => silence(),
        "flood" => flood(),
        "crowd" => crowd(),
        "own" => hands_over(Kind::HoldUserfault, 16),
        "raw_children" => hands_over(Kind::RawForked, RAW_CHILDREN_MAX),
        "forks" => hands_over(Kind::Forked, 64),
        "talker" => talker(),
        "outside_notes" => outside_notes(),
        "false_notes" => false_notes(),
        "token" => token(),
        "name" => name(),
        "secret" => secret(),
        "borrower" => borrower(),
        "decisions" => decisions(),
        other => panic!("no role {other}"),
    }
}

fn closed(sockets: &[OwnedFd]) -> usize {
    sockets.iter().filter(|socket| stirs(socket, 0)).count()
}

/// A member hands over a pipe with messages of a userfaultfd, each of this event and with one of
/// these numbers at this offset, and leaves: the supervisor would read them.
fn hands_over_forged(kind: Kind, event: u8, offset: usize, numbers: impl Iterator<Item = u32>) {
    let (reader, writer) = pipe().expect("pipe");
    for number in numbers {
        let mut message = [0; 32];
        message[0] = event;
        message[offset..offset + 4].copy_from_slice(&number.to_ne_bytes());
        rustix::io::write(&writer, &message).expect("written");
    }
    let member = Member::join();
    member.say(&Message::new(kind, [0; 3]), &[&reader]);
    std::thread::sleep(Duration::from_millis(50));
    drop(member);
    std::thread::sleep(Duration::from_millis(600));
}

fn no_userfaultfd() {
    let zero = open("/dev/zero", OFlags::RDWR, Mode::empty()).expect("opens");
    let memory = memfd_create("anon_inode:[userfaultfd]", MemfdFlags::CLOEXEC).expect("memory");
    for kind in [Kind::HoldUserfault, Kind::Forked, Kind::RawForked] {
        for other in [&zero, &memory] {
            let member = Member::join();
            member.say(&Message::new(kind, [7, 8, 0]), &[other]);
            assert_closed(&member.socket);
        }
        let member = Member::join();
        member.say(&Message::new(kind, [7, 8, 0]), &[]);
        assert_closed(&member.socket);
        // The first descriptor counts, and nothing else does.
        let member = Member::join();
        member.say(&Message::new(kind, [7, 8, 0]), &[&zero, &userfault(None)]);
        assert_closed(&member.socket);
    }
    let member = Member::join();
    member.say(&Message::new(Kind::HoldUserfault, [0; 3]), &[&userfault(None), &zero]);
    assert_eq!(member.want(1), [0]);
    assert_answers();
}

#[test]
fn what_is_no_userfaultfd_is_believed_in_no_message() {
    let (_, status, text) = play("no_userfaultfd", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(lines(&text, "is no userfaultfd"), 1, "{text}");
}

fn forged_forks() {
    hands_over_forged(Kind::HoldUserfault, 0x13, 8, 3..40);
    assert_answers();
    assert_eq!(Member::join().want(1), [0]);
}

#[test]
fn no_descriptor_number_is_taken_from_bytes() {
    let (_, status, text) = play("forged_forks", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(lines(&text, "is no userfaultfd"), 1, "nothing was read from it: {text}");
}

fn forged_fault() {
    let victim = fork(|| std::thread::sleep(Duration::from_secs(60)));
    hands_over_forged(Kind::RawForked, 0x12, 24, std::iter::once(victim as u32));
    assert_eq!(state(victim as u32), 'S', "it sleeps on");
    end(victim);
}

#[test]
fn a_forged_fault_ends_nobody() {
    succeeds("forged_fault", &[]);
}

/// A true userfaultfd comes from a process that could not end the one whose memory it is.
fn another_users() {
    let (mine, theirs) = pair();
    let victim = fork(|| {
        // SAFETY: a new anonymous mapping.
        let memory = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE)
                .expect("mmap")
        };
        pass(&theirs, Some(&userfault(Some(memory as u64))));
        take(&theirs);
        // SAFETY: reads the mapping; the fault is never served.
        unsafe { memory.cast::<u8>().read_volatile() };
    });
    let uffd = take(&mine).expect("the userfaultfd");
    let nobody = nobody(|| {
        let member = Member::join();
        member.say(&Message::new(Kind::RawForked, [0; 3]), &[&uffd]);
        assert!(!member.want(1).is_empty());
    });
    assert_eq!(exit_status(nobody), 0);
    drop(uffd);
    pass(&mine, None);
    std::thread::sleep(Duration::from_millis(900));
    assert_ne!(state(victim as u32), 'Z', "it waits, and was not ended");
    end(victim);
}

#[test]
fn nobody_has_a_process_of_root_ended() {
    if !is_root() {
        return skipping::note("only root can become another user");
    }
    let (_, status, text) = play("another_users", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(lines(&text, "had no right to end it"), 1, "{text}");
}

fn silence() {
    let parent = Member::join();
    let (here, there) = pair();
    let child = fork(|| {
        let socket = hello(99);
        pass(&there, Some(&userfault(None)));
        assert!(!stirs(&socket, 3000), "who waits for its parent has said something");
        pass(&there, None);
        Member::welcomed(socket);
    });
    let uffd = take(&here).expect("the child's userfaultfd");
    let (start, silent, asked) = (Instant::now(), connect(), ask());
    answer(&asked);
    wait_until("the silent connection is closed", || stirs(&silent, 0));
    assert!(start.elapsed() > Duration::from_millis(1500));
    take(&here);
    assert!(!stirs(&asked, 0), "who has asked something may stay");
    parent.say(&Message::new(Kind::Forked, [99, 0, 0]), &[&uffd]);
    assert_eq!(exit_status(child), 0);
    assert_eq!(parent.want(1), [0]);
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    succeeds("silence", &[]);
}

fn flood() {
    let first = Member::join();
    let (start, silent): (_, Vec<OwnedFd>) = (Instant::now(), (0..40).map(|_| connect()).collect());
    wait_until("the surplus is closed", || closed(&silent) >= 32);
    if start.elapsed() < Duration::from_secs(1) {
        assert_eq!(closed(&silent[..8]), 0, "the first ones stay");
    }
    assert_eq!(first.want(1), [0]);
    assert_eq!(exit_status(fork(|| assert_eq!(Member::join().want(1), [1]))), 0, "others come in");
    wait_until("the others are closed", || closed(&silent) == 40);
    // Members are bounded by the segment alone.
    let members: Vec<Member> = (0..20).map(|_| Member::join()).collect();
    assert!(!members[19].want(1).is_empty());
}

#[test]
fn a_process_has_so_many_connections_and_no_more() {
    let (_, status, text) = play("flood", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(lines(&text, "has more than 8 connections"), 1, "{text}");
}

/// Twenty processes keep eight connections each, all of which have said something.
fn crowd() {
    let (here, there) = pair();
    let crowd: Vec<i32> = (0..20)
        .map(|_| {
            fork(|| {
                let _open: Vec<OwnedFd> = (0..8)
                    .map(|_| {
                        let socket = connect();
                        // The supervisor may have closed it already.
                        let _ = wire::send(&socket, &Message::new(Kind::Query, [0; 3]), &[]);
                        socket
                    })
                    .collect();
                pass(&there, None);
                std::thread::sleep(Duration::from_secs(60));
            })
        })
        .collect();
    crowd.iter().for_each(|_| drop(take(&here)));
    let socket = hello(0);
    assert!(stirs(&socket, 1500), "there are descriptors for a member");
    assert_eq!(Member::welcomed(socket).want(1), [0]);
    for pid in crowd {
        end(pid);
    }
}

#[test]
fn half_of_the_descriptors_are_for_members() {
    let (_, status, text) = play_with("crowd", &[], |command| {
        // SAFETY: the closure makes one system call.
        unsafe {
            command.pre_exec(|| {
                let few = Some(256);
                Ok(setrlimit(Resource::Nofile, Rlimit { current: few, maximum: few })?)
            })
        };
    });
    assert_eq!(status, 0, "{text}");
}

/// A member hands so many userfaultfds over in this message, and one more.
fn hands_over(kind: Kind, most: usize) {
    let uffd = userfault(None);
    let member = Member::join();
    let send = |member: &Member, number: usize| {
        member.say(&Message::new(kind, [1 + number as u64, 5, 0]), &[&uffd]);
    };
    (0..most).for_each(|number| send(&member, number));
    assert_eq!(member.want(1), [0], "so many are its right");
    send(&member, most);
    assert_closed(&member.socket);
    assert_answers();
}

#[test]
fn a_process_hands_over_so_many_userfaultfds_and_no_more() {
    for (role, words) in [
        ("own", "sent more than 16 userfaultfds of its own"),
        ("raw_children", "sent more than 64 userfaultfds of children that it serves"),
        ("forks", "announced more than 64 children"),
    ] {
        let (_, status, text) = play(role, &[]);
        assert_eq!(status, 0, "{role}: {text}");
        assert_eq!(lines(&text, words), 1, "{role}: {text}");
    }
}

/// Two members talk without a pause, and others are heard all the same.
fn talker() {
    let talkers = [(); 2].map(|()| {
        fork(|| {
            let member = Member::join();
            let (message, start) = (Message::new(Kind::DropClusters, [0; 3]), Instant::now());
            while start.elapsed() < Duration::from_secs(8) {
                // A full queue is no error.
                let _ = wire::send(&member.socket, &message, &[]);
            }
        })
    });
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..5 {
        assert_answers();
    }
    for pid in talkers {
        end(pid);
    }
}

#[test]
fn who_talks_without_a_pause_keeps_nobody_waiting() {
    succeeds("talker", &[]);
}

fn outside_notes() {
    let member = Member::join();
    assert_eq!(member.want(1), [0]);
    let lost = Lost::CorruptOnDevice { slot: 7 }.pack();
    for refused in [
        note(Note::WriteFailed, 7, libc::EIO as u64),
        note(Note::Poisoned, 0x1000, lost),
        note(Note::Violation, 1, 0),
    ] {
        assert_closed(&says(&refused));
    }
    let socket = connect();
    for own in [note(Note::NoUserfault, libc::EPERM as u64, 0), note(Note::Ends, Ending::NotJoined as u64, 0)]
    {
        wire::send(&socket, &own, &[]).expect("sent");
    }
    assert!(!stirs(&socket, 200), "why it is no member may be said by anybody");
    assert_eq!(member.group.decisions.devices[1].errors(), 0);
}

#[test]
fn a_process_that_is_no_member_has_no_pages_to_report() {
    let (run, status, text) = play("outside_notes", &[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(run.stats()["devices"][1]["errors"], 0);
    assert!(!text.contains("is lost") && !text.contains("violated"), "{text}");
    assert_eq!(lines(&text, "ends: it cannot join the group"), 1, "{text}");
}

fn false_notes() {
    let (owner, other) = (Member::join(), Member::join());
    assert_eq!((owner.want(2).len(), other.want(1).len()), (2, 1));
    let errors = |member: &Member| {
        member.want(1);
        member.group.decisions.devices[1].errors()
    };
    let say = |slot: u64, note_of: &dyn Fn(u64) -> Message| {
        (0..20).for_each(|_| owner.say(&note_of(slot), &[]));
        errors(&owner)
    };
    let refused = |slot| note(Note::WriteFailed, slot, libc::EIO as u64);
    let damaged = |slot| note(Note::Poisoned, 0x1000, Lost::CorruptOnDevice { slot }.pack());
    assert_eq!(say(2 * CLUSTER + 7, &refused), 0, "a slot of the other member");
    assert_eq!(say(2 * CLUSTER + 7, &damaged), 0, "a slot of the other member");
    assert_eq!(say(1000 * CLUSTER, &refused), 0, "a slot of nobody");
    assert_eq!(say(7, &refused), 1, "one slot fails once");
    assert_eq!(say(CLUSTER + 8, &damaged), 2, "one slot fails once");
    let full = note(Note::WriteFailed, 2 * CLUSTER, libc::ENOSPC as u64);
    owner.say(&full, &[]);
    assert_eq!(errors(&owner), 2);
    let device = &owner.group.decisions.devices[1];
    assert!(!device.is_full() && !device.is_failed());
}

#[test]
fn a_device_fails_by_its_own_slots_and_by_each_once() {
    let (run, status, text) = play("false_notes", &[]);
    assert_eq!(status, 0, "{text}");
    let device = &run.stats()["devices"][1];
    assert_eq!((&device["errors"], &device["failed"]), (&2.into(), &false.into()));
    assert_eq!(lines(&text, "refused a write"), 1, "{text}");
    assert!(text.contains("gives other bytes than were written"), "the page is lost all the same: {text}");
}

fn token() {
    let parent = Member::join();
    assert_eq!(parent.want(1), [0]);
    let (here, there) = pair();
    let child = fork(|| {
        let socket = says(&Message::new(Kind::Hello, [77, 1, 0]));
        pass(&there, Some(&userfault(None)));
        take(&there);
        assert!(!stirs(&socket, 400), "half of a token is none");
        pass(&there, None);
        let member = Member::welcomed(socket);
        assert!(member.userfault.is_some());
        assert_eq!(member.owners(0), 3, "the parent, the child, and one that never speaks");
    });
    let uffd = take(&here).expect("the child's userfaultfd");
    parent.say(&Message::new(Kind::Forked, [77, 2, 0]), &[&uffd]);
    pass(&here, None);
    take(&here);
    parent.say(&Message::new(Kind::Forked, [77, 1, 0]), &[&uffd]);
    assert_eq!(exit_status(child), 0);
}

#[test]
fn a_fork_token_has_two_words() {
    succeeds("token", &[]);
}

fn name() {
    std::fs::write("/proc/self/comm", "\u{1b}[31mX\u{7}").expect("named");
    let member = Member::join();
    let words = [OutOfMemory::PagerFailed as u64, libc::ENOMEM as u64, 0];
    member.say(&Message::new(Kind::OutOfMemory, words), &[]);
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn the_name_of_a_process_commands_no_terminal() {
    let (_, status, text) = play("name", &[]);
    assert_eq!(status, 137, "{text}");
    assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
    assert!(text.contains("(\\x1b[31mX\\x07)"), "{text}");
}

/// The beginning of each page of [`secret`].
const SECRET: &[u8; 16] = b"folioswap secret";

/// New memory of whole pages.
fn pages(bytes: usize) -> &'static mut [u8] {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which stays, and zeroes are bytes.
    unsafe {
        let start = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE);
        std::slice::from_raw_parts_mut(start.expect("mmap").cast(), bytes)
    }
}

/// A managed process writes more than its limit. A child that it made before, and that is nobody
/// now, reads the device as any member can, and prints how many pages of its parent it finds.
fn secret() {
    let (mine, theirs) = pair();
    let reader = nobody(|| {
        take(&theirs);
        // The first two are the segment and the decisions.
        let device = answer(&hello(0)).descriptors.remove(2);
        // The device is open for direct I/O, which wants aligned memory. It is locked: a pager that
        // brings a page of it back would read the same file, whose lock this read holds.
        let bytes = pages(32 << 10);
        // SAFETY: the mapping is ours, and locking changes no bytes.
        unsafe { rustix::mm::mlock(bytes.as_mut_ptr().cast(), bytes.len()) }.expect("locked");
        let (mut found, mut at) = (0, 0);
        while let Ok(got @ 1..) = rustix::io::pread(&device, &mut bytes[..], at) {
            found += bytes[..got].chunks(4096).filter(|page| page.starts_with(SECRET)).count();
            at += got as u64;
        }
        println!("found {found} pages");
    });
    let memory = pages(160 << 20);
    let mut noise = 1_u64;
    for page in memory.chunks_exact_mut(4096) {
        for word in page.chunks_exact_mut(8) {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&noise.to_le_bytes());
        }
        page[..16].copy_from_slice(SECRET);
    }
    pass(&mine, None);
    assert_eq!(exit_status(reader), 0);
    assert!(memory.chunks_exact(4096).all(|page| page.starts_with(SECRET)));
}

#[test]
fn a_member_reads_nothing_that_another_wrote() {
    if !is_root() {
        return skipping::note("only root can become another user");
    }
    let found = |encrypt: &str| {
        let me = std::env::current_exe().expect("known");
        let swap = format!("file:/var/tmp,size=512M,encrypt={encrypt}");
        let words = [me.to_str().expect("text"), "fake_member", "--exact", "--nocapture"];
        let mut run = Run::managed(&["--swap", &swap], &words);
        run.command.env("FAKE_MEMBER", "secret");
        let (status, out, err) = run.output();
        assert_eq!(status, 0, "{out}{err}");
        let line = out.lines().find_map(|line| line.split_once("found ")).expect("a line").1;
        line.split(' ').next().and_then(|count| count.parse::<usize>().ok()).expect("a number")
    };
    assert!(found("no") > 10_000, "the search finds pages that are not encrypted");
    assert_eq!(found("yes"), 0);
}

/// Sends a request by a link to a network device; returns the errno of its answer, 0 for done.
fn request(link: &OwnedFd, command: Command, cluster: u32, pages: &[u8]) -> u32 {
    let offset = u64::from(cluster) * CLUSTER * 4096;
    let request = Request { command, cookie: 1, offset, length: 4096 }.encode();
    send(link, &[&request[..], pages].concat(), SendFlags::NOSIGNAL).expect("sent");
    let mut answer = [0; 4096];
    let (_, length) = recv(link, &mut answer, RecvFlags::empty()).expect("an answer");
    Reply::decode(&answer[..length]).map_or(0, |reply| reply.error)
}

/// A member stores a page on an export. Another one, which is nobody, asks for it.
fn borrower() {
    const DEVICE: u64 = 1;
    const MISSING: u32 = libc::ENODATA as u32;
    let member = Member::join();
    let link = &member.devices[0];
    let cluster = member.want_of(1, DEVICE)[0];
    assert_eq!(request(link, Command::Write, cluster, &[7; 4096]), 0);
    let nobody = nobody(|| {
        let member = Member::join();
        let link = &member.devices[0];
        for (command, pages) in [(Command::Read, &[][..]), (Command::Write, &[9; 4096])] {
            assert_eq!(request(link, command, cluster, pages), libc::EACCES as u32);
        }
        let own = member.want_of(1, DEVICE)[0];
        assert_eq!(request(link, Command::Read, own, &[]), MISSING, "its own is new");
        assert_eq!(request(link, Command::Write, own, &[9; 4096]), 0);
    });
    assert_eq!(exit_status(nobody), 0);
    assert_eq!(request(link, Command::Read, cluster, &[]), 0);
}

#[test]
fn a_member_reaches_nobody_elses_pages_on_an_export() {
    if !is_root() {
        return skipping::note("only root can become another user");
    }
    let directory = std::env::temp_dir().join(format!("folioswap-export-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("made");
    let socket = directory.join("socket");
    let server = std::process::Command::new("nbdkit")
        .args(["-f", "--exit-with-parent", "-U"])
        .arg(&socket)
        .args(["memory", "64M"])
        .spawn();
    let Ok(mut server) = server else { return skipping::note("nbdkit is not installed") };
    wait_until("the server listens", || UnixStream::connect(&socket).is_ok());
    let played = play("borrower", &["--swap", &format!("nbd+unix:///?socket={}", socket.display())]);
    drop(server.kill());
    drop(server.wait());
    drop(std::fs::remove_dir_all(&directory));
    assert_eq!(played.1, 0, "{}", played.2);
}

/// Asks for every way to write memory through this descriptor, or to make it shorter.
fn assert_cannot_write(fd: BorrowedFd<'_>) {
    let map = |protection| {
        // SAFETY: a new mapping, which nobody uses.
        unsafe { mmap(std::ptr::null_mut(), Decisions::BYTES, protection, MapFlags::SHARED, fd, 0) }
    };
    assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE), Err(Errno::PERM));
    assert_eq!(map(ProtFlags::WRITE), Err(Errno::PERM));
    let place = map(ProtFlags::READ).expect("for reading");
    let writable = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: nobody uses the mapping.
    unsafe {
        assert_eq!(mprotect(place, Decisions::BYTES, writable), Err(Errno::ACCESS));
        assert!(madvise(place, Decisions::BYTES, Advice::LinuxRemove).is_err());
    }
    assert_eq!(pwrite(fd, &[0xff; 4096], 0), Err(Errno::PERM));
    assert_eq!(ftruncate(fd, 0), Err(Errno::PERM));
    assert_eq!(ftruncate(fd, 2 * Decisions::BYTES as u64), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(fd, hole, 0, Decisions::BYTES as u64), Err(Errno::PERM));
    assert_eq!(fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM));
}

fn decisions() {
    let member = Member::join();
    let decisions = member.group.decisions;
    let read = || {
        let device = decisions.devices[1].description();
        (decisions.limit_bytes(), decisions.scope(), decisions.state(), device, decisions.devices_changed())
    };
    let before = read();
    assert_cannot_write(member.decisions.as_fd());
    let writable = MprotectFlags::READ | MprotectFlags::WRITE;
    let mapped = std::ptr::from_ref(decisions).cast_mut().cast();
    // SAFETY: the mapping of the fake member, of which nothing is written.
    assert_eq!(unsafe { mprotect(mapped, Decisions::BYTES, writable) }, Err(Errno::ACCESS));
    // Another file description of the file.
    let path = format!("/proc/self/fd/{}", member.decisions.as_raw_fd());
    assert_cannot_write(open(path, OFlags::RDWR, Mode::empty()).expect("opened").as_fd());
    // Those of the supervisor, as far as this process may open them.
    let theirs = std::fs::read_dir(format!("/proc/{}/fd", decisions.supervisor_pid()));
    for entry in theirs.into_iter().flatten().flatten() {
        let name = std::fs::read_link(entry.path()).unwrap_or_default();
        if name.to_string_lossy().contains("folioswap-decisions")
            && let Ok(fd) = open(entry.path(), OFlags::RDWR, Mode::empty())
        {
            assert_cannot_write(fd.as_fd());
        }
    }
    assert_eq!(read(), before);
    // The supervisor still writes there.
    assert_eq!((member.want(1), member.owners(0)), (vec![0], 1));
}

#[test]
fn no_member_writes_what_the_supervisor_has_decided() {
    succeeds("decisions", &[]);
}

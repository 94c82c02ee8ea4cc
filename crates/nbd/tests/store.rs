//! Pages of swap on real servers: encrypted, recognised again, and never wrong.

mod common;

use common::pages::{holds_planted, planted, read, write};
use common::{Server, TestDir, has, until};
use folioswap_group::swap_link::{Command, Reply, Request};
use folioswap_group::units::PAGE_SIZE;
use folioswap_nbd::client::{Event, Settings};
use folioswap_nbd::error::{ConnectError, Replaced, RequestError};
use folioswap_nbd::service::{Access, Service};
use folioswap_nbd::store::{Encryption, FIRST, Prepared, Store};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, send, sendmsg, socketpair,
};
use std::fs;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
fn prepare(dir: &TestDir, encryption: Encryption) -> Result<Prepared, ConnectError> {
    let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
    Prepared::new(dir.uri(""), encryption, settings)
}

fn open(dir: &TestDir, encryption: Encryption) -> Arc<Store> {
    prepare(dir, encryption).expect("prepared").start().expect("a key")
}

#[test]
fn what_is_encrypted_cannot_be_read_there_and_what_was_changed_not_here() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB);
    let _server = Server::nbdkit(&dir, &["file", &disk.display().to_string()]);
    let store = open(&dir, Encryption::Random);
    for slot in 0..100 {
        write(&store, slot, planted(slot)).expect("written");
    }
    write(&store, 512, [planted(1), planted(2), planted(3)].concat()).expect("written");
    for slot in 0..100 {
        assert_eq!(read(&store, slot, 1), Ok(planted(slot)));
    }
    assert_eq!(read(&store, 512, 3), Ok([planted(1), planted(2), planted(3)].concat()));
    assert!(!holds_planted(&fs::read(&disk).expect("it")), "readable on the server");
    let file = fs::OpenOptions::new().read(true).write(true).open(&disk).expect("it");
    let at = |slot: u64| FIRST + slot * PAGE_SIZE as u64;
    let mut page = vec![0; PAGE_SIZE];
    // Pages are moved, damaged, lost, and old.
    file.read_exact_at(&mut page, at(1)).expect("read");
    file.write_all_at(&page, at(2)).expect("written");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at(3) + 77).expect("read");
    file.write_all_at(&[!byte[0]], at(3) + 77).expect("written");
    file.write_all_at(&[0; PAGE_SIZE], at(4)).expect("written");
    file.read_exact_at(&mut page, at(5)).expect("read");
    write(&store, 5, planted(5)).expect("written");
    file.write_all_at(&page, at(5)).expect("written");
    for slot in 2..=5 {
        assert_eq!(read(&store, slot, 1), Err(RequestError::Forged), "{slot}");
    }
    assert_eq!(read(&store, 1, 1), Ok(planted(1)));
    assert_eq!(read(&store, 200, 1), Err(RequestError::Missing));
    assert_eq!(read(&store, 1, 2), Err(RequestError::Forged), "one of them");
    // A cluster that was given up has no contents.
    let before = store.table_bytes();
    store.trim_cluster(1);
    assert!(store.table_bytes() < before);
    assert_eq!(read(&store, 512, 1), Err(RequestError::Missing));
    write(&store, 512, planted(9)).expect("written after the trim");
    assert_eq!(read(&store, 512, 1), Ok(planted(9)));
    assert_eq!(store.take_events(), []);
    store.finish(Duration::from_secs(5));
    file.read_exact_at(&mut page, 0).expect("read");
    assert!(page.iter().all(|&byte| byte == 0), "the mark is off");
}

#[test]
fn without_encryption_pages_are_there_as_they_are() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let disk = dir.disk(8 * MIB);
    let _server = Server::nbdkit(&dir, &["file", &disk.display().to_string()]);
    let store = open(&dir, Encryption::None);
    write(&store, 7, planted(7)).expect("written");
    assert_eq!(read(&store, 7, 1), Ok(planted(7)));
    assert!(holds_planted(&fs::read(&disk).expect("it")));
    assert!(matches!(read(&store, 1 << 40, 1), Err(RequestError::Range { .. })));
}

#[test]
fn an_empty_or_older_export_is_not_the_one_that_was() {
    if !has("nbdkit") {
        return;
    }
    for encryption in [Encryption::Random, Encryption::None] {
        let dir = TestDir::new();
        let server = Server::nbdkit(&dir, &["memory", "64M"]);
        let store = open(&dir, encryption);
        write(&store, 0, planted(0)).expect("written");
        drop(server);
        let _server = Server::nbdkit(&dir, &["memory", "64M"]);
        let failed = read(&store, 0, 1);
        assert_eq!(failed, Err(RequestError::Replaced(Replaced::Mark)));
        let events = store.take_events();
        assert!(events.contains(&Event::Replaced(Replaced::Mark)), "{events:?}");
        assert!(write(&store, 1, planted(1)).is_err(), "it stays so");
    }
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB);
    let words = ["file", &disk.display().to_string()];
    let server = Server::nbdkit(&dir, &words);
    let store = open(&dir, Encryption::None);
    let old = fs::read(&disk).expect("it");
    until("a beat", || mark(&disk) != old[..PAGE_SIZE]);
    let first = mark(&disk);
    // The next beat confirms it.
    until("the next beat", || mark(&disk) != first);
    drop(server);
    fs::write(&disk, old).expect("written");
    let _server = Server::nbdkit(&dir, &words);
    let failed = read(&store, 0, 1);
    assert!(matches!(failed, Err(RequestError::Replaced(Replaced::Older { .. }))), "{failed:?}");
}

#[test]
fn a_server_that_is_away_is_waited_for_and_then_not() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB).display().to_string();
    let server = Server::nbdkit(&dir, &["file", &disk]);
    let store = open(&dir, Encryption::Random);
    write(&store, 0, planted(0)).expect("written");
    drop(server);
    assert_eq!(read(&store, 0, 1), Err(RequestError::Away));
    let began = std::time::Instant::now();
    assert_eq!(read(&store, 0, 1), Err(RequestError::Away));
    assert!(began.elapsed() < Duration::from_millis(500), "at once, since it was away for too long");
    let _server = Server::nbdkit(&dir, &["file", &disk]);
    until("an answer", || read(&store, 0, 1).is_ok());
    assert_eq!(read(&store, 0, 1), Ok(planted(0)));
    let events = store.take_events();
    assert!(matches!(events[..], [Event::Away(_), Event::Back(_)]), "{events:?}");
}

#[test]
fn an_export_that_cannot_serve_is_refused_and_not_touched() {
    if !has("nbdkit") {
        return;
    }
    let refused = |words: &[&str]| {
        let dir = TestDir::new();
        let _server = Server::nbdkit(&dir, words);
        prepare(&dir, Encryption::Random).err().expect("refused")
    };
    assert!(matches!(refused(&["memory", "2M"]), ConnectError::TooSmall { bytes: 2_097_152, .. }));
    assert!(matches!(refused(&["-r", "memory", "64M"]), ConnectError::ReadOnly));
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB);
    let file = fs::OpenOptions::new().write(true).open(&disk).expect("it");
    file.write_all_at(b"LABELONE", 512).expect("written");
    let before = fs::read(&disk).expect("it");
    let server = Server::nbdkit(&dir, &["file", &disk.display().to_string()]);
    assert!(matches!(prepare(&dir, Encryption::None).err(), Some(ConnectError::Foreign)));
    assert!(fs::read(&disk).expect("it") == before);
    // One export is this run's under another name, one another run has, and one a run left behind.
    file.write_all_at(&[0; 8], 512).expect("written");
    let store = open(&dir, Encryption::None);
    let first = mark(&disk);
    assert!(matches!(prepare(&dir, Encryption::None).err(), Some(ConnectError::Twice)));
    until("a beat", || mark(&disk) != first);
    let second = mark(&disk);
    drop((store, server));
    file.write_all_at(&first, 0).expect("written");
    let server = Server::nbdkit(&dir, &["file", &disk.display().to_string()]);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            file.write_all_at(&second, 0).expect("written");
        });
        assert!(matches!(prepare(&dir, Encryption::None).err(), Some(ConnectError::InUse)));
    });
    drop(server);
    let _server = Server::nbdkit(&dir, &["file", &disk.display().to_string()]);
    prepare(&dir, Encryption::None).expect("taken over");
}

#[test]
fn an_error_now_and_then_is_no_reason_to_refuse_an_export() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let (disk, once) = (dir.disk(64 * MIB), dir.path("once"));
    let (disk, once) = (disk.display(), once.display());
    // The first look and the mark each fail once.
    let fails =
        |what| format!("if [ ! -e {once}-{what} ]; then touch {once}-{what}; echo EIO >&2; exit 1; fi");
    let read = format!("pread={}; dd if={disk} iflag=count_bytes,skip_bytes skip=$4 count=$3", fails("read"));
    let write = format!("pwrite={}; dd of={disk} oflag=seek_bytes conv=notrunc seek=$4", fails("write"));
    let _server = Server::nbdkit(&dir, &["eval", "get_size=echo 64M", &read, &write]);
    prepare(&dir, Encryption::None).expect("taken");
    assert!(["read", "write"].iter().all(|what| fs::exists(format!("{once}-{what}")).expect("known")));
}

/// The first block.
fn mark(disk: &Path) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    fs::File::open(disk).and_then(|mut file| file.read_exact(&mut page)).expect("it");
    page
}

#[test]
fn of_those_who_find_an_export_free_at_the_same_time_one_has_it() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    // All of them have looked before the first one has written.
    let _server = Server::nbdkit(&dir, &["--filter=delay", "memory", "64M", "wdelay=60ms"]);
    let winners = thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| prepare(&dir, Encryption::None))).collect();
        let prepared: Vec<_> = runs.into_iter().map(|run| run.join().expect("it ends")).collect();
        for refused in prepared.iter().filter_map(|prepared| prepared.as_ref().err()) {
            assert!(matches!(refused, ConnectError::InUse | ConnectError::Twice), "{refused}");
        }
        prepared.iter().filter(|prepared| prepared.is_ok()).count()
    });
    assert_eq!(winners, 1);
}

#[test]
fn a_run_whose_export_was_taken_over_gives_it_up() {
    if !has("nbdkit") {
        return;
    }
    let (dir, other) = (TestDir::new(), TestDir::new());
    let (disk, other_disk) = (dir.disk(64 * MIB), other.disk(64 * MIB));
    let _server = Server::nbdkit(&dir, &["file", &disk.display().to_string()]);
    let _other = Server::nbdkit(&other, &["file", &other_disk.display().to_string()]);
    let store = open(&dir, Encryption::None);
    let _prepared = prepare(&other, Encryption::None).expect("prepared");
    let taken = mark(&other_disk);
    let file = fs::OpenOptions::new().write(true).open(&disk).expect("it");
    // The read falls between two beats.
    let before = mark(&disk);
    until("a beat", || mark(&disk) != before);
    file.write_all_at(&taken, 0).expect("written");
    let mut events = Vec::new();
    until("it notices", || {
        events.extend(store.take_events());
        events.contains(&Event::Replaced(Replaced::Mark))
    });
    assert_eq!(write(&store, 0, planted(0)), Err(RequestError::Replaced(Replaced::Mark)));
    store.finish(Duration::from_secs(5));
    assert!(mark(&disk) == taken, "the other's mark stays");
}

fn post(link: &OwnedFd, command: Command, cookie: u64, slot: u64, pages: &[u8]) {
    let (offset, length) =
        (slot * PAGE_SIZE as u64, if pages.is_empty() { PAGE_SIZE } else { pages.len() } as u32);
    let request = Request { command, cookie, offset, length }.encode();
    send(link, &[&request[..], pages].concat(), SendFlags::NOSIGNAL).expect("sent");
}

/// Adds this socket to the links of whoever has `link`.
fn attach(link: &OwnedFd, added: OwnedFd) {
    let request = Request { command: Command::Attach, cookie: 0, offset: 0, length: 0 }.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let carried = [added.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&carried)));
    sendmsg(link, &[IoSlice::new(&request)], &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
}

fn answer(link: &OwnedFd) -> Vec<u8> {
    let mut answer = vec![0; 256 << 10];
    let (_, received) = recv(link, &mut answer[..], RecvFlags::empty()).expect("an answer");
    answer.truncate(received);
    answer
}

/// Requests that a member made before it was killed do not come after the writes of the next owner
/// of its slots.
#[test]
fn the_last_wishes_of_a_dead_member_are_not_carried_out_after_its_heirs() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let _server = Server::nbdkit(&dir, &["memory", "64M"]);
    let service = Service::start(open(&dir, Encryption::Random)).expect("started");
    let (heir, _) = service.new_link(Access::All).expect("a link");
    for round in 0..8 {
        let (killed, owner) = service.new_link(Access::All).expect("a link");
        // These are more requests than one look at the link takes.
        (0..24).for_each(|cookie| post(&killed, Command::Write, cookie, 7, &planted(1000 + cookie)));
        service.forget(owner);
        post(&heir, Command::Write, 1, 7, &planted(round));
        assert_eq!(Reply::decode(&answer(&heir)), Some(Reply { error: 0, cookie: 1 }));
        // The wait is as long as a request of it could take.
        thread::sleep(Duration::from_millis(5));
        post(&heir, Command::Read, 2, 7, &[]);
        assert!(answer(&heir) == planted(round), "round {round}");
        assert_eq!(service.links(), 1);
    }
    service.finish();
}

/// Two writes to one slot, of which the second waits for the first: members that read do not wait
/// with it.
#[test]
fn a_write_that_waits_for_another_keeps_nobody_from_reading() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let words = ["--filter=delay", "memory", "64M", "delay-write=1500ms", "delay-fast-zero=0"];
    let _server = Server::nbdkit(&dir, &words);
    let service = Service::start(open(&dir, Encryption::Random)).expect("started");
    let links: Vec<OwnedFd> = (0..3).map(|_| service.new_link(Access::All).expect("a link").0).collect();
    post(&links[2], Command::Write, 1, 3, &planted(3));
    assert_eq!(Reply::decode(&answer(&links[2])), Some(Reply { error: 0, cookie: 1 }));
    let posted = Instant::now();
    post(&links[0], Command::Write, 1, 7, &planted(1));
    post(&links[1], Command::Write, 1, 7, &planted(2));
    thread::sleep(Duration::from_millis(20));
    post(&links[2], Command::Read, 2, 3, &[]);
    assert!(answer(&links[2]) == planted(3));
    assert!(
        posted.elapsed() < Duration::from_millis(1500),
        "before the first of them: {:?}",
        posted.elapsed()
    );
    for link in &links[..2] {
        assert_eq!(Reply::decode(&answer(link)), Some(Reply { error: 0, cookie: 1 }));
    }
    assert!(posted.elapsed() >= Duration::from_millis(2900), "one after the other: {:?}", posted.elapsed());
    post(&links[2], Command::Read, 3, 7, &[]);
    assert!(answer(&links[2]) == planted(2), "the one that came later");
    service.finish();
}

#[test]
fn members_are_answered_on_each_of_their_links() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let _server = Server::nbdkit(&dir, &["memory", "64M"]);
    let service = Service::start(open(&dir, Encryption::Random)).expect("started");
    let (link, _) = service.new_link(Access::All).expect("a link");
    let ask = |link: &OwnedFd, command, cookie, offset, length, data: &[u8]| {
        let request = Request { command, cookie, offset, length }.encode();
        send(link, &[&request[..], data].concat(), SendFlags::NOSIGNAL).expect("sent");
        let mut answer = vec![0; 256 << 10];
        let (_, received) = recv(link, &mut answer[..], RecvFlags::empty()).expect("an answer");
        answer.truncate(received);
        answer
    };
    let pages: Vec<u8> = (0..64).flat_map(planted).collect();
    let done = ask(&link, Command::Write, 9, 8 << 20, 256 << 10, &pages);
    assert_eq!(Reply::decode(&done), Some(Reply { error: 0, cookie: 9 }));
    assert!(ask(&link, Command::Read, 10, 8 << 20, 256 << 10, &[]) == pages);
    let (other, _) = service.new_link(Access::All).expect("a link");
    assert!(ask(&other, Command::Read, 1, (8 << 20) + 4096, 4096, &[]) == planted(1));
    for (offset, length) in [(1, 4096), (0, 100), (1 << 50, 4096)] {
        let refused = Reply::decode(&ask(&link, Command::Read, 2, offset, length, &[])).expect("a reply");
        assert_eq!(refused, Reply { error: 22, cookie: 2 });
    }
    let missing = Reply::decode(&ask(&link, Command::Read, 3, 0, 4096, &[])).expect("a reply");
    assert_eq!(missing.error, 61, "ENODATA");
    // A member that dies in the middle, or violates the protocol, ends only its own links.
    let (dying, _) = service.new_link(Access::All).expect("a link");
    let request = Request { command: Command::Read, cookie: 1, offset: 8 << 20, length: 4096 }.encode();
    send(&dying, &request, SendFlags::NOSIGNAL).expect("sent");
    drop(dying);
    let (mad, _) = service.new_link(Access::All).expect("a link");
    send(&mad, &[7; 28], SendFlags::NOSIGNAL).expect("sent");
    until("two links", || service.links() == 2);
    assert!(ask(&other, Command::Read, 4, 8 << 20, 4096, &[]) == planted(0));
    service.finish();
}

/// A member reads and writes in its own clusters, on each of its links, and in nobody else's.
#[test]
fn a_member_reaches_what_is_granted_to_it_and_nothing_else() {
    if !has("nbdkit") {
        return;
    }
    const CLUSTER: u64 = 512;
    let dir = TestDir::new();
    let _server = Server::nbdkit(&dir, &["memory", "64M"]);
    let service = Service::start(open(&dir, Encryption::Random)).expect("started");
    let (mine, me) = service.new_link(Access::Granted).expect("a link");
    let (theirs, them) = service.new_link(Access::Granted).expect("a link");
    let refused = |link: &OwnedFd, command, slot, pages: &[u8]| {
        post(link, command, 5, slot, pages);
        Reply::decode(&answer(link)) == Some(Reply { error: 13, cookie: 5 })
    };
    let write = |link: &OwnedFd, slot, number| {
        post(link, Command::Write, 6, slot, &planted(number));
        assert_eq!(Reply::decode(&answer(link)), Some(Reply { error: 0, cookie: 6 }));
    };
    let reads = |link: &OwnedFd, slot, number| {
        post(link, Command::Read, 7, slot, &[]);
        answer(link) == planted(number)
    };
    service.grant(me, [3].into_iter());
    service.grant(them, [4].into_iter());
    write(&mine, 3 * CLUSTER, 1);
    write(&theirs, 4 * CLUSTER, 2);
    assert!(reads(&mine, 3 * CLUSTER, 1));
    assert!(refused(&mine, Command::Read, 4 * CLUSTER, &[]));
    assert!(refused(&mine, Command::Write, 4 * CLUSTER, &planted(9)));
    let across = [planted(8), planted(9)].concat();
    assert!(refused(&mine, Command::Write, 4 * CLUSTER - 1, &across), "one page would be theirs");
    assert!(reads(&theirs, 4 * CLUSTER, 2), "nothing was written there");
    // A link that it adds has no more rights than its first.
    let flags = SocketFlags::CLOEXEC;
    let (ours, added) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    attach(&mine, added);
    assert!(reads(&ours, 3 * CLUSTER, 1) && refused(&ours, Command::Read, 4 * CLUSTER, &[]));
    // A child inherits.
    let (heir, child) = service.new_link(Access::Granted).expect("a link");
    assert!(refused(&heir, Command::Read, 3 * CLUSTER, &[]));
    service.grant(child, [3].into_iter());
    assert!(reads(&heir, 3 * CLUSTER, 1));
    service.withdraw(me, [3].into_iter());
    assert!(
        refused(&mine, Command::Read, 3 * CLUSTER, &[]) && refused(&ours, Command::Read, 3 * CLUSTER, &[])
    );
    assert!(reads(&heir, 3 * CLUSTER, 1));
    service.finish();
}

/// Threads of this process with this name.
fn threads_named(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads");
    let comm = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(comm).filter(|comm| comm.trim() == name).count()
}

/// A device that is taken out of use leaves no threads, and a member that waits on a link learns of
/// it. The child has no other test's threads.
#[test]
fn a_service_that_is_dropped_leaves_nothing() {
    if !has("nbdkit") {
        return;
    }
    const ALONE: &str = "FOLIOSWAP_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let me = std::env::current_exe().expect("known");
        let words = ["a_service_that_is_dropped_leaves_nothing", "--exact"];
        let status = std::process::Command::new(me).args(words).env(ALONE, "1").status().expect("started");
        assert!(status.success());
        return;
    }
    let dir = TestDir::new();
    let _server = Server::nbdkit(&dir, &["memory", "64M"]);
    for _ in 0..20 {
        let service = Service::start(open(&dir, Encryption::Random)).expect("started");
        let (link, _) = service.new_link(Access::All).expect("a link");
        until("it begins", || threads_named("nbd-links") >= 1);
        service.finish();
        drop(service);
        let mut reply = [0; 64];
        let (_, length) = recv(&link, &mut reply, RecvFlags::empty()).expect("its end");
        assert_eq!(length, 0);
    }
    until("they end", || threads_named("nbd-links") == 0);
}

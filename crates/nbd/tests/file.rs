//! Pages on a local file, sealed: nothing can be read there, and a changed, moved or old page does
//! not open.

mod common;

use common::pages::{holds_planted, planted, read, write};
use common::{TestDir, until};
use folioswap_group::units::PAGE_SIZE;
use folioswap_nbd::error::RequestError;
use folioswap_nbd::service::Service;
use folioswap_nbd::store::Store;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::net::{RecvFlags, recv};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, mpsc};

fn store(path: &Path) -> Arc<Store> {
    let file: OwnedFd =
        open(path, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).expect("it");
    Store::on_file(file).expect("a key")
}

#[test]
fn what_is_sealed_is_readable_nowhere_and_opens_only_in_its_place() {
    let dir = TestDir::new();
    let disk = dir.disk(8 << 20);
    let store = store(&disk);
    for slot in 0..100 {
        write(&store, slot, planted(slot)).expect("written");
    }
    write(&store, 512, (0..64).flat_map(planted).collect()).expect("written");
    assert!((0..100).all(|slot| read(&store, slot, 1) == Ok(planted(slot))));
    assert!(read(&store, 512, 64) == Ok((0..64).flat_map(planted).collect()));
    let bytes = fs::read(&disk).expect("it");
    assert!(!holds_planted(&bytes), "readable on the disk");
    assert!(bytes[..100 * PAGE_SIZE].chunks_exact(PAGE_SIZE).all(|page| page.iter().any(|&byte| byte != 0)));
    let file = File::options().read(true).write(true).open(&disk).expect("it");
    let at = |slot: u64| slot * PAGE_SIZE as u64;
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
    let mut again = vec![0; PAGE_SIZE];
    file.read_exact_at(&mut again, at(5)).expect("read");
    assert!(page != again, "the same page under another nonce");
    file.write_all_at(&page, at(5)).expect("written");
    for slot in 2..=5 {
        assert_eq!(read(&store, slot, 1), Err(RequestError::Forged), "{slot}");
    }
    assert_eq!(read(&store, 1, 1), Ok(planted(1)));
    assert_eq!(read(&store, 200, 1), Err(RequestError::Missing));
    // Another store has another key.
    assert_eq!(read(&self::store(&disk), 1, 1), Err(RequestError::Missing));
    store.forget_cluster(1);
    assert_eq!(read(&store, 512, 1), Err(RequestError::Missing));
}

#[test]
fn what_the_disk_refuses_is_said_and_many_are_served_at_a_time() {
    let dir = TestDir::new();
    let disk = dir.disk(4 << 20);
    let read_only = open(&disk, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("it");
    let refusing = Store::on_file(read_only).expect("a key");
    assert_eq!(write(&refusing, 0, planted(0)), Err(RequestError::Server(9)), "EBADF");
    assert!(matches!(write(&refusing, 0, vec![0; 65 * PAGE_SIZE]), Err(RequestError::Range { .. })));
    let store = store(&disk);
    let (sender, receiver) = mpsc::channel();
    // Each slot is written several times, and the last write counts.
    for round in 0..16 {
        for slot in 0..64 {
            let sender = sender.clone();
            store.write(
                slot,
                planted(round),
                Box::new(move |result| sender.send(result.is_ok()).expect("it waits")),
            );
        }
    }
    assert!((0..16 * 64).all(|_| receiver.recv().expect("an answer")));
    assert!((0..64).all(|slot| read(&store, slot, 1) == Ok(planted(15))));
    File::options().write(true).open(&disk).and_then(|file| file.set_len(0)).expect("cut off");
    assert_eq!(read(&store, 3, 1), Err(RequestError::Server(5)));
}

/// Threads of this process with this name.
fn threads_named(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads");
    let comm = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(comm).filter(|comm| comm.trim() == name).count()
}

/// A device that is taken out of use leaves no threads, and a member that waits on a link learns of
/// it.
#[test]
fn a_service_that_is_dropped_leaves_nothing() {
    let dir = TestDir::new();
    let disk = dir.disk(4 << 20);
    for _ in 0..50 {
        let service = Service::start(store(&disk)).expect("started");
        let (link, _) = service.new_link().expect("a link");
        until("it begins", || threads_named("nbd-links") >= 1);
        drop(service);
        let mut reply = [0; 64];
        let (_, length) = recv(&link, &mut reply, RecvFlags::empty()).expect("its end");
        assert_eq!(length, 0);
    }
    until("they end", || threads_named("nbd-links") == 0);
}

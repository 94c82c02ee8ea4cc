use super::*;
use folioswap_group::decisions::Scope;
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create},
    io::pwrite,
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect},
};
use std::ptr::null_mut;

fn memory() -> GroupMemory {
    let memory = GroupMemory::create().expect("memfd");
    memory.writer().initialise(7, 1 << 30, Scope::Total, []);
    memory
}

#[test]
fn a_group_is_shared_and_foreign_files_are_refused() {
    let empty = GroupMemory::create().expect("memfd");
    let [decisions, segment] = empty.for_viewers();
    assert!(GroupView::for_reading(decisions, segment).is_err(), "nothing is filled in yet");
    let memory = memory();
    let [decisions, segment] = memory.for_viewers();
    let view = GroupView::for_reading(decisions, segment).expect("valid now");
    assert_eq!(view.group().decisions.supervisor_pid(), 7);
    assert!(GroupView::for_reading(segment, decisions).is_err(), "in this order alone");
    let short = memfd_create("x", MemfdFlags::ALLOW_SEALING).expect("memfd");
    assert!(GroupView::for_reading(&short, segment).is_err());
    assert!(GroupView::for_reading(decisions, &short).is_err());
}

/// Whoever has the descriptor, or opens the file anew, as its owner or as root, can read it.
#[test]
fn who_did_not_make_the_decisions_cannot_write_them() {
    let memory = memory();
    let [given, _] = memory.for_members();
    let path = format!("/proc/self/fd/{}", given.as_raw_fd());
    let opened = open(path, OFlags::RDWR, Mode::empty()).expect("it may be opened");
    for fd in [given, opened.as_fd()] {
        let map = |protection| {
            // SAFETY: a new mapping, which nobody uses.
            unsafe { mmap(null_mut(), Decisions::BYTES, protection, MapFlags::SHARED, fd, 0) }
        };
        assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE), Err(Errno::PERM));
        let place = map(ProtFlags::READ).expect("for reading");
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: nobody uses the mapping.
        assert_eq!(unsafe { mprotect(place, Decisions::BYTES, writable) }, Err(Errno::ACCESS));
        assert_eq!(pwrite(fd, &[0xff; 8], 16), Err(Errno::PERM));
        assert_eq!(ftruncate(fd, 0), Err(Errno::PERM));
        assert_eq!(ftruncate(fd, 1 << 30), Err(Errno::PERM));
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(fd, hole, 0, 4096), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM));
    }
    let view = memory.map_again().expect("mapped");
    memory.writer().set_limit_bytes(1 << 20);
    assert_eq!(view.group().decisions.limit_bytes(), 1 << 20, "their maker goes on");
}

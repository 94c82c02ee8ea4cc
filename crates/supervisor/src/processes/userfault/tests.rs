use super::{
    probe::{USER_MODE_ONLY, by_syscall, handshake},
    *,
};
use rustix::fs::{MemfdFlags, Mode, memfd_create, open};
use std::io::{Write, pipe};

#[test]
fn our_own_memory_is_not_gone() {
    let Ok(fd) = by_syscall(USER_MODE_ONLY) else { return };
    handshake(&fd, 0).expect("API");
    let fd = Userfault::prove(fd).expect("it is one");
    assert!(!fd.is_orphaned());
    assert!(fd.read_event().is_none());
}

#[test]
fn nothing_else_passes_for_a_userfaultfd() {
    let null = open("/dev/zero", OFlags::RDWR, Mode::empty()).expect("opens");
    assert!(Userfault::prove(null).is_none());
    let named = memfd_create("anon_inode:[userfaultfd]", MemfdFlags::CLOEXEC).expect("memory");
    assert!(Userfault::prove(named).is_none());
    let (reader, mut writer) = pipe().expect("a pipe");
    writer.write_all(&[0x13; 32]).expect("written");
    assert!(Userfault::prove(reader.into()).is_none());
}

#[test]
fn a_userfaultfd_that_cannot_tell_the_end_of_its_memory_is_not_taken() {
    let Ok(fd) = by_syscall(USER_MODE_ONLY) else { return };
    assert!(Userfault::prove(fd).is_none());
}

/// The flag that makes reads return at once belongs to all who have the descriptor.
#[test]
fn reading_waits_for_nobody_who_made_the_descriptor_block() {
    let Ok(fd) = by_syscall(USER_MODE_ONLY) else { return };
    handshake(&fd, 0).expect("API");
    let theirs = fd.try_clone().expect("duplicated");
    let fd = Userfault::prove(fd).expect("it is one");
    let flags = fcntl_getfl(&theirs).expect("flags");
    fcntl_setfl(&theirs, flags.difference(OFlags::NONBLOCK)).expect("blocking");
    assert!(fd.read_event().is_none());
}

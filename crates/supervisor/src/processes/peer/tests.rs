use super::*;
use crate::ipc::wire;
use rustix::net::{SocketFlags, accept_with};

#[test]
fn the_peer_is_the_process_that_connected() {
    let name = wire::new_name().expect("random");
    let listener = wire::listen_as(&name).expect("listens");
    let _here = wire::connect_to(&name).expect("connects");
    let there = accept_with(&listener, SocketFlags::CLOEXEC).expect("accepted");
    let peer = Peer::of(&there).expect("known");
    assert_eq!((peer.pid, peer.user), (std::process::id(), rustix::process::geteuid()));
    assert!(exists(&peer.process));
}

/// The other end stays open in another process, which does not make that one the peer.
#[test]
fn a_peer_that_was_waited_for_is_not_taken_for_another_process() {
    let name = wire::new_name().expect("random");
    let listener = wire::listen_as(&name).expect("listens");
    // SAFETY: the child makes system calls only, and ends by _exit.
    let child = unsafe {
        match libc::fork() {
            0 => {
                let connected = wire::connect_to(&name);
                libc::_exit(i32::from(connected.is_err()))
            }
            child => child,
        }
    };
    let there = loop {
        match accept_with(&listener, SocketFlags::CLOEXEC) {
            Ok(there) => break there,
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(errno) => panic!("{errno}"),
        }
    };
    let early = Peer::of(&there).expect("it exists, if only as a zombie");
    assert!(exists(&early.process));
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert!(!exists(&early.process));
    assert!(Peer::of(&there).map_or(true, |late| !exists(&late.process)));
}

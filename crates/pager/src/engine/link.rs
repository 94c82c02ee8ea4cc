//! The member's end of the control protocol (`folioswap_group::protocol`).

use crate::engine::Engine;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::protocol::{DESCRIPTORS_MAX, Kind, Message, SOCKET_SUFFIX};
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};

/// Descriptors that came with a message, in order; -1 for none.
pub type Descriptors = [i32; DESCRIPTORS_MAX];

/// Connects to the group of this name; the descriptor is the caller's. Abstract names are those of
/// a network namespace: from another one the group is reached by the socket that lies beside the
/// agent.
///
/// # Errors
/// ECONNREFUSED: the group has ended, or the process has left its network namespace and may not
/// follow the agent's path any more.
pub fn connect_to(group: &[u8], agent: &[u8]) -> Result<i32, Errno> {
    let socket = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let named = socket()?;
    let Err(why) = connect(&named, &SocketAddrUnix::new_abstract_name(group)?) else {
        return Ok(named.into_raw_fd());
    };
    drop(named);
    let mut path = [0; PATH_MAX];
    let length = agent.len() + SOCKET_SUFFIX.len();
    // The kernel wants a zero behind it.
    if agent.is_empty() || length >= PATH_MAX {
        return Err(why);
    }
    path[..agent.len()].copy_from_slice(agent);
    path[agent.len()..length].copy_from_slice(SOCKET_SUFFIX);
    let beside = socket()?;
    connect(&beside, &SocketAddrUnix::new(&path[..length])?).map_err(|_| why)?;
    Ok(beside.into_raw_fd())
}

/// Bytes of the longest path of a socket (unix(7)).
const PATH_MAX: usize = 108;

/// Sends a message, with a descriptor if there is one. Blocks while the supervisor's queue is full.
///
/// # Errors
/// EPIPE, ECONNRESET: the supervisor is gone.
pub fn send(control: i32, message: &Message, descriptor: Option<i32>) -> Result<(), Errno> {
    // SAFETY: the control descriptor stays open for the life of the pager threads.
    let control = unsafe { BorrowedFd::borrow_raw(control) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    // SAFETY: the caller holds the descriptor open during the call.
    let carried = descriptor.map(|descriptor| [unsafe { BorrowedFd::borrow_raw(descriptor) }]);
    if let Some(carried) = &carried {
        ancillary.push(SendAncillaryMessage::ScmRights(carried));
    }
    loop {
        match sendmsg(control, &[IoSlice::new(message.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits for a message.
///
/// # Errors
/// ECONNRESET: the supervisor is gone.
pub fn receive(control: i32) -> Result<(Message, Descriptors), Errno> {
    // SAFETY: as in `send`.
    let control = unsafe { BorrowedFd::borrow_raw(control) };
    let mut bytes = [0; Message::BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            control.as_fd(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    let mut descriptors = [-1; DESCRIPTORS_MAX];
    let mut count = 0;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for descriptor in rights {
                if count < DESCRIPTORS_MAX {
                    descriptors[count] = OwnedFd::into_raw_fd(descriptor);
                    count += 1;
                }
            }
        }
    }
    if received.bytes != Message::BYTES {
        return Err(Errno::CONNRESET);
    }
    Ok((Message::from_bytes(&bytes), descriptors))
}

impl Engine {
    /// Sends the supervisor a message that needs no answer; where it is gone, the program ends too.
    pub(crate) fn tell(&self, kind: Kind, words: [u64; 3], descriptor: Option<i32>) {
        let control = self.descriptors.control.load(Relaxed);
        if send(control, &Message::new(kind, words), descriptor).is_err() {
            self.kill_program();
        }
    }
}

//! Sending and receiving the control protocol's messages, with their descriptors, over a
//! `SOCK_SEQPACKET` socket.

use folioswap_group::protocol::{DESCRIPTORS_MAX, Message};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, Mode, memfd_create},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen,
        recvmsg, sendmsg, socket_with,
    },
    rand::{GetRandomFlags, getrandom},
};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    path::Path,
};

/// A message as it arrived, with the descriptors that came along.
pub struct Received {
    /// The message.
    pub message: Message,
    /// The descriptors, all close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// The start of the abstract name of each group's socket; [`NAME_DIGITS`] hexadecimal digits
/// follow.
const NAME_START: &str = "folioswap-";
/// The digits of 128 random bits.
const NAME_DIGITS: usize = 32;
/// Connections that may wait to be accepted; the system's somaxconn cuts it.
const BACKLOG: i32 = 4096;

/// A new name for a group's socket, which nobody can guess.
///
/// # Errors
/// Of getrandom(2).
pub fn new_name() -> Result<String, Errno> {
    Ok(format!("{NAME_START}{}", random_digits()?))
}

/// 128 random bits as 32 hexadecimal digits, for a name that nobody can guess.
///
/// # Errors
/// Of getrandom(2).
pub fn random_digits() -> Result<String, Errno> {
    let mut random = [0_u8; NAME_DIGITS / 2];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{:0width$x}", u128::from_ne_bytes(random), width = NAME_DIGITS))
}

/// Whether this abstract name is that of a group's socket.
pub fn is_name(name: &str) -> bool {
    name.strip_prefix(NAME_START).is_some_and(|digits| digits.len() == NAME_DIGITS)
}

/// Listens for members under this abstract name, without blocking in accept(2).
///
/// # Errors
/// Of socket(2), bind(2) and listen(2).
pub fn listen_as(name: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Listens for members at this path, which all users may connect to, without blocking in accept(2).
///
/// # Errors
/// Of socket(2), bind(2), chmod(2) and listen(2).
pub fn listen_at(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to a group's socket by its abstract name.
///
/// # Errors
/// `ECONNREFUSED` when no such group runs in this network namespace.
pub fn connect_to(name: &str) -> Result<OwnedFd, Errno> {
    connect_with(name, SocketFlags::CLOEXEC)
}

fn connect_with(name: &str, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// [`connect_to`], but a listener that has as many connections waiting as it takes is not waited
/// for: whoever may open sockets may listen under a name like a group's.
///
/// # Errors
/// As [`connect_to`]; `EAGAIN` for such a listener.
pub fn connect_at_once(name: &str) -> Result<OwnedFd, Errno> {
    let socket = connect_with(name, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// Sends one message with at most `DESCRIPTORS_MAX` descriptors, without waiting.
///
/// # Errors
/// Of sendmsg(2); `EAGAIN` for a receiver that does not read.
pub fn send(socket: impl AsFd, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(
            control.push(SendAncillaryMessage::ScmRights(descriptors)),
            "at most DESCRIPTORS_MAX descriptors"
        );
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(socket, &[IoSlice::new(message.as_bytes())], &mut control, flags)?;
    debug_assert_eq!(sent, Message::BYTES);
    Ok(())
}

/// Calls `receive` until it gives a result, past EINTR and past one ECONNRESET.
///
/// When the other end has gone without reading all that we sent, the kernel reports ECONNRESET
/// once, before it hands out the messages that the other end had sent. Those must not be lost.
///
/// # Errors
/// Those of `receive`, but EINTR and the first ECONNRESET.
pub fn past_reset<T>(mut receive: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut reset = false;
    loop {
        match receive() {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) if !reset => reset = true,
            other => return other,
        }
    }
}

/// Receives one message; `None` at the end of the connection. Waits for a message when the socket
/// is blocking.
///
/// # Errors
/// Of recvmsg(2); `EPROTO` for bytes that are not a message.
pub fn receive(socket: impl AsFd) -> Result<Option<Received>, Errno> {
    let mut bytes = [0_u8; Message::BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = past_reset(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    match got.bytes {
        0 => Ok(None),
        Message::BYTES => Ok(Some(Received { message: Message::from_bytes(&bytes), descriptors })),
        _ => Err(Errno::PROTO),
    }
}

/// The longest text that goes along with a message, in bytes.
const TEXT_MAX: usize = 64 << 10;

/// Makes a descriptor that carries a text of at most 64 KiB; the rest of a longer text
/// is lost.
///
/// # Errors
/// Of memfd_create(2) and write(2).
pub fn text(text: &[u8]) -> Result<OwnedFd, Errno> {
    let file = memfd_create("folioswap-text", MemfdFlags::CLOEXEC)?;
    rustix::io::write(&file, &text[..text.len().min(TEXT_MAX)])?;
    Ok(file)
}

/// Reads the text that such a descriptor carries.
///
/// # Errors
/// Of pread(2), for example when the descriptor is no file.
pub fn text_in(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut text = vec![0; TEXT_MAX];
    let length = rustix::io::pread(file, &mut text[..], 0)?;
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests;

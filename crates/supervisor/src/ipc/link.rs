//! The link between front and supervisor: a socket pair of packets. The end of the link tells each
//! side that the other is gone.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

use super::wire::past_reset;
use crate::processes::signals::Arrived;

/// The most bytes of text in one packet; a longer text takes several packets.
const TEXT_MAX: usize = 16 << 10;

/// The state of the tree when CMD has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// No process is left: the supervisor ends at once, and the front waits for that.
    Nothing,
    /// Descendants are left: the supervisor stays, and the front does not wait.
    Descendants,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// To the front: text for standard error.
    Text(Vec<u8>),
    /// To the front: CMD stopped (job control), with its process id.
    Stopped(u32),
    /// To the front: CMD has ended, with the exit status.
    Ended(i32, Remains),
    /// To the supervisor: the front got this signal. CMD shall get it too, unless the whole process
    /// group got it.
    Forward(Arrived),
}

/// One end of the link.
pub struct Link(OwnedFd);

impl Link {
    /// Makes both ends.
    ///
    /// # Errors
    /// Of socketpair(2): the process may have no more descriptors.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Link(a), Link(b)))
    }

    /// Sends text for standard error. Text that a stopped front cannot take is lost, so that the
    /// supervisor never waits.
    pub fn say(&self, text: &str) {
        for part in text.as_bytes().chunks(TEXT_MAX) {
            self.send(&Packet::Text(part.to_vec()));
        }
    }

    /// Sends a packet without waiting. The packet is lost when the other end is gone or does not
    /// read.
    pub fn send(&self, packet: &Packet) {
        let bytes = encode(packet);
        while send(&self.0, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) == Err(Errno::INTR) {}
    }

    /// Takes the next packet without waiting.
    ///
    /// # Errors
    /// `EAGAIN` when no packet waits; `EPIPE` when the other end is gone and every packet was read.
    pub fn receive(&self) -> Result<Packet, Errno> {
        let mut buffer = vec![0_u8; TEXT_MAX + 1];
        let (length, _) = past_reset(|| recv(&self.0, buffer.as_mut_slice(), RecvFlags::DONTWAIT))?;
        decode(&buffer[..length]).ok_or(Errno::PIPE)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn encode(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut number = |tag: u8, values: &[u32]| {
        bytes.push(tag);
        values.iter().for_each(|value| bytes.extend(value.to_ne_bytes()));
    };
    match packet {
        Packet::Stopped(pid) => number(b'S', &[*pid]),
        Packet::Ended(status, remains) => {
            number(b'E', &[*status as u32, u32::from(*remains == Remains::Descendants)])
        }
        Packet::Forward(signal) => number(b'F', &[signal.signal as u32, signal.code as u32, signal.pid]),
        Packet::Text(text) => {
            bytes.push(b'T');
            bytes.extend(text);
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Packet> {
    let (&tag, rest) = bytes.split_first()?;
    let word = |index: usize| {
        let bytes = rest.get(index * 4..index * 4 + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    Some(match tag {
        b'T' => Packet::Text(rest.to_vec()),
        b'S' => Packet::Stopped(word(0)?),
        b'E' => Packet::Ended(
            word(0)? as i32,
            if word(1)? == 0 { Remains::Nothing } else { Remains::Descendants },
        ),
        b'F' => Packet::Forward(Arrived { signal: word(0)? as i32, code: word(1)? as i32, pid: word(2)? }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;

//! The link between front and supervisor: a socket pair of packets. Its end tells each that the other is gone.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

use super::wire::past_reset;
use crate::processes::signals::Arrived;

/// Most bytes of text in one packet; longer texts take several.
const TEXT_MAX: usize = 16 << 10;

/// What remains of the tree when CMD has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Nothing: the supervisor ends at once, and the front waits for that.
    Nothing,
    /// Descendants: the supervisor stays, the front does not wait.
    Descendants,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// To the front: text for standard error.
    Text(Vec<u8>),
    /// To the front: CMD stopped (job control); its process id.
    Stopped(u32),
    /// To the front: CMD has ended; the exit status.
    Ended(i32, Remains),
    /// To the supervisor: the front got this signal; CMD shall get it unless the whole process group did.
    Forward(Arrived),
}

/// One end of the link.
pub struct Link(OwnedFd);

impl Link {
    /// Both ends.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Link(a), Link(b)))
    }

    /// Sends text for standard error. What a stopped front cannot take is lost, rather than that the supervisor waits.
    pub fn say(&self, text: &str) {
        for part in text.as_bytes().chunks(TEXT_MAX) {
            self.send(&Packet::Text(part.to_vec()));
        }
    }

    /// Sends a packet; what cannot be sent is lost (the other end is gone or does not read).
    pub fn send(&self, packet: &Packet) {
        let bytes = encode(packet);
        while send(&self.0, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) == Err(Errno::INTR) {}
    }

    /// The next packet.
    ///
    /// # Errors
    /// `EAGAIN` when none waits; `EPIPE` when the other end is gone and all was read.
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
mod tests {
    use super::*;

    #[test]
    fn packets_survive_the_link() {
        let (a, b) = Link::pair().expect("socketpair");
        let packets = [
            Packet::Text(b"hello".to_vec()),
            Packet::Stopped(7),
            Packet::Ended(137, Remains::Nothing),
            Packet::Ended(0, Remains::Descendants),
            Packet::Forward(Arrived { signal: 15, code: -6, pid: 99 }),
        ];
        for packet in &packets {
            a.send(packet);
        }
        for packet in &packets {
            assert_eq!(b.receive().as_ref(), Ok(packet));
        }
        assert_eq!(b.receive(), Err(Errno::AGAIN));
        drop(a);
        assert_eq!(b.receive(), Err(Errno::PIPE));
    }

    #[test]
    fn what_an_end_sent_arrives_though_it_went_with_packets_unread() {
        let (a, b) = Link::pair().expect("socketpair");
        b.send(&Packet::Forward(Arrived { signal: 2, code: 0, pid: 1 }));
        a.send(&Packet::Ended(130, Remains::Nothing));
        drop(a);
        assert_eq!(b.receive(), Ok(Packet::Ended(130, Remains::Nothing)));
        assert_eq!(b.receive(), Err(Errno::PIPE));
    }
}

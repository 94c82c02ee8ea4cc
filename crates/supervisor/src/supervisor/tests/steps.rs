//! The steps of an input: what processes do to the supervisor, each read off a few bytes.

use super::{
    bytes::Bytes,
    world::{CLIENTS, Client, State, World, connection, pair},
};
use crate::{ipc::wire, processes::peer, size::LIMIT_MIN, supervisor::connection::Kinship};
use folioswap_group::{
    protocol::{Kind, Lost, Message, OutOfMemory},
    segment::Segment,
};
use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    net::{SendFlags, Shutdown, send, shutdown},
};
use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// The most steps of an input.
const STEPS: usize = 256;

/// What costs as much as a whole input else, and so can be had only so often in one script.
pub struct Costly {
    /// Puppets that are ended, each of which takes a fork.
    ends: usize,
    /// Connections that a puppet makes itself.
    connects: usize,
    /// Walks over all processes.
    walks: usize,
}

impl Costly {
    pub const fn new() -> Self {
        Costly { ends: 60, connects: 120, walks: 20 }
    }

    /// Takes one of these, if any is left.
    fn take(left: &mut usize) -> Option<()> {
        *left = left.checked_sub(1)?;
        Some(())
    }
}

impl World<'_> {
    /// Takes the steps of an input, then lets everybody leave. Returns what was seen, in numbers.
    pub fn try_input(&mut self, input: &[u8]) -> Vec<u32> {
        self.seen.clear();
        let mut bytes = Bytes(input);
        for _ in 0..STEPS {
            let Some(step) = bytes.next() else { break };
            // A step that is not possible is none.
            let _ = self.step(step, &mut bytes);
        }
        self.settle();
        self.leave();
        self.take_texts();
        std::mem::take(&mut self.seen)
    }

    fn step(&mut self, step: u8, bytes: &mut Bytes<'_>) -> Option<()> {
        match step % 16 {
            // Zeroes are many, since words of messages are mostly that.
            0 => {
                let index = self.some_client(bytes)?;
                self.read(index);
            }
            1 => self.connect(bytes)?,
            2 => self.connect_to_listener(bytes)?,
            3..=8 | 13 => self.say(bytes)?,
            9 => self.say_no_message(bytes)?,
            10 => self.close_one(bytes)?,
            11 => {
                self.now += Duration::from_millis([1, 10, 25, 100, 300, 1000, 2100, 31_000][bytes.below(8)])
            }
            12 => self.round(),
            14 => self.scribble(bytes),
            _ => match bytes.byte() {
                0..3 => {
                    Costly::take(&mut self.costly.ends)?;
                    self.puppets.some(bytes.below(3)).end();
                }
                3..6 => {
                    Costly::take(&mut self.costly.walks)?;
                    self.supervisor.count_unmanaged(self.now);
                }
                _ => self.round_for_honest(),
            },
        }
        Some(())
    }

    /// One of the connections; `None` when there is none.
    fn some_client(&self, bytes: &mut Bytes<'_>) -> Option<usize> {
        let index = bytes.below(self.clients.len());
        (index < self.clients.len()).then_some(index)
    }

    /// A new connection of a puppet, as if it had been accepted; it may say hello at once.
    fn connect(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let how = bytes.byte();
        let puppet = self.puppets.some(usize::from(how & 3));
        if self.clients.len() >= CLIENTS || !peer::exists(&puppet.process) {
            return None;
        }
        let kinship = if how & 4 == 0 { Kinship::Descendant } else { Kinship::Stranger };
        let (socket, other) = pair();
        let connection = connection(other, puppet, kinship, self.now);
        let serial = Some(self.take(connection));
        self.clients.push(Client { socket, serial, owed: 0, state: State::Open });
        if how & 8 != 0 {
            let hello = Message::new(Kind::Hello, [0; 3]);
            let last = self.clients.len() - 1;
            let sent = wire::send(&self.clients[last].socket, &hello, &[]);
            self.note_sent(last, &hello, sent);
        }
        Some(())
    }

    /// A puppet connects by itself.
    fn connect_to_listener(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let puppet = self.puppets.some(bytes.below(3));
        if self.clients.len() >= CLIENTS {
            return None;
        }
        Costly::take(&mut self.costly.connects)?;
        let socket = puppet.connect(&self.group)?;
        fcntl_setfl(&socket, OFlags::NONBLOCK).expect("a flag");
        let before = self.supervisor.next_serial;
        self.supervisor.accept(self.now);
        let serial = (self.supervisor.next_serial > before).then_some(before);
        self.clients.push(Client { socket, serial, owed: 0, state: State::Open });
        Some(())
    }

    fn say(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let index = self.some_client(bytes)?;
        let message = self.message(bytes);
        if message.kind() == Some(Kind::OutOfMemory) && message.words[0] == OutOfMemory::PagerFailed as u64 {
            Costly::take(&mut self.costly.ends)?;
        }
        // Its own end, which keeps itself alive in the queue, is among them.
        let own = self.clients[index].socket.as_fd();
        let others: Vec<BorrowedFd<'_>> = self.puppets.userfaults().chain([own]).collect();
        let sent = wire::send(own, &message, &self.pool.chosen(bytes, &others));
        self.note_sent(index, &message, sent);
        self.seen.push(message.kind.min(32) << 8);
        Some(())
    }

    /// Notes that a client has sent a message. The other end may have closed its own, or not have
    /// read for long.
    fn note_sent(&mut self, index: usize, message: &Message, sent: Result<(), Errno>) {
        if sent.is_ok() {
            self.messages += 1;
            self.clients[index].owed += usize::from(is_request(message.kind));
        }
    }

    fn message(&self, bytes: &mut Bytes<'_>) -> Message {
        const KINDS: [u32; 22] =
            [1, 4, 5, 6, 7, 9, 10, 11, 12, 14, 16, 18, 0, 2, 3, 8, 13, 15, 17, 19, 20, u32::MAX];
        let kind = KINDS[bytes.below(KINDS.len())];
        let words = [(); 3].map(|()| self.number(bytes));
        let mut message = Message::new(Kind::Hello, words);
        message.kind = kind;
        if kind == Kind::Change as u32 {
            match &mut message.words {
                // The limit stays out of reach, and the children of other tests go on.
                [0, limit, _] if *limit >= LIMIT_MIN => *limit |= 1 << 32,
                [what, ..] if *what == 1 => *what = 2,
                _ => {}
            }
        }
        if kind == Kind::DropClusters as u32 {
            let count = bytes.byte();
            message.cluster_count = if count < 32 { count.into() } else { bytes.half_word() };
            for cluster in &mut message.clusters[..usize::from(count % 25).min(24)] {
                *cluster = self.number(bytes) as u32;
            }
        }
        message
    }

    /// A number of a byte or eight, or one that means something.
    fn number(&self, bytes: &mut Bytes<'_>) -> u64 {
        let slot = u64::from(self.cluster) * 512 + 7;
        let special = match bytes.byte() {
            small @ 0..192 => return small.into(),
            special => special - 192,
        };
        match special {
            0 => u64::MAX,
            1 => 1 << 63,
            2 => 1 << 32,
            3 => u32::MAX.into(),
            4 => self.cluster.into(),
            5 => slot,
            6 => slot + bytes.word() % 512,
            7 => Lost::CorruptOnDevice { slot }.pack(),
            8 => Lost::Unreadable { slot, errno: libc::EIO as u16 }.pack(),
            9 => Lost::Unreadable { slot, errno: bytes.byte().into() }.pack(),
            10 => Lost::Missing.pack(),
            11 => libc::ENOSPC as u64,
            12 => libc::EHOSTDOWN as u64,
            13 => libc::ETIMEDOUT as u64,
            _ => bytes.word(),
        }
    }

    /// Bytes that are no message.
    fn say_no_message(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let index = self.some_client(bytes)?;
        let length = [0, 1, 8, Message::BYTES - 1, Message::BYTES, Message::BYTES + 1, 4096][bytes.below(7)];
        let text = vec![bytes.byte(); length];
        let client = &mut self.clients[index];
        let is_whole = length == Message::BYTES;
        if send(&client.socket, &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok() && is_whole {
            client.owed += usize::from(is_request(u32::from_ne_bytes([text[0]; 4])));
        }
        Some(())
    }

    fn close_one(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let index = self.some_client(bytes)?;
        let client = self.clients.swap_remove(index);
        if bytes.byte().is_multiple_of(4) {
            // Half of it: answers may still come.
            let _ = shutdown(&client.socket, Shutdown::Write);
            self.clients.push(client);
        }
        Some(())
    }

    /// Writes a word anywhere in the segment, as every member can.
    fn scribble(&mut self, bytes: &mut Bytes<'_>) {
        let place = bytes.half_word() as usize;
        // Most of what the supervisor reads is at the start.
        let end = if place & 1 == 0 { 8 << 10 } else { Segment::BYTES };
        let value = self.number(bytes) as u32;
        let segment: *const Segment = self.supervisor.settings.memory.group().segment;
        let words = segment.cast::<AtomicU32>();
        // SAFETY: within the segment, which consists of atomics and is shared with every member.
        unsafe { (*words.add(place / 2 % (end / size_of::<u32>()))).store(value, Relaxed) };
    }
}

/// Whether a message is answered, unless its connection is closed.
fn is_request(kind: u32) -> bool {
    let kind = Message { kind, ..Message::new(Kind::Hello, [0; 3]) }.kind();
    matches!(
        kind,
        Some(
            Kind::Hello
                | Kind::WantClusters
                | Kind::Query
                | Kind::Swapoff
                | Kind::Swapon
                | Kind::Change
                | Kind::WantDevice
        )
    )
}

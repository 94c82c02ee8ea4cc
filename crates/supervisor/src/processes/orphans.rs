//! Memory whose pager is, or may be, gone.
//!
//! The supervisor holds a duplicate of every userfaultfd, since memory whose last userfaultfd is
//! closed reads as zeroes. When the connection of a pager ends while the memory that it served
//! still exists, nothing can bring the pages back: the first process that touches one is ended,
//! with one message.

use super::{
    peer, proc,
    userfault::{Event, Userfault},
};
use rustix::{
    fd::{AsFd, BorrowedFd},
    process::{Pid, PidfdFlags, Signal, Uid, pidfd_open, pidfd_send_signal},
};
use std::time::{Duration, Instant};

/// A fault on unserved memory is a loss only if the memory still exists after this time, because
/// processes that are just ending fault too.
const DELAY: Duration = Duration::from_millis(100);

/// The events that are read from one userfaultfd in one round of the poll loop. Its processes can
/// make events without end, and the next round goes on with them.
const EVENTS_PER_ROUND: usize = 16;
/// The most userfaultfds that are held of one sender. A process has at most 64 children that it
/// serves and one memory of its own, so this is room for several images by exec, each of which left
/// as many children behind.
const HELD_PER_SENDER: usize = 256;

/// The sender of a userfaultfd, as the kernel named it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The process.
    pub pid: u32,
    /// The effective user of the process.
    pub user: Uid,
}

impl Sender {
    /// Whether kill(2) would allow this sender to end a process whose real user is `user`.
    pub fn may_end(self, user: u32) -> bool {
        self.user.is_root() || self.user.as_raw() == user
    }
}

/// A thread whose fault waits, and the time when its process is to be ended.
struct Condemned {
    thread: u32,
    due: Instant,
}

/// The fate of a condemned process: its id and its name, if it still lived.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The process was ended.
    Ended(u32, String),
    /// The process waits for ever, because the sender of the userfaultfd has no right to end it.
    Spared(u32, String),
    /// The process had ended by itself.
    Gone,
}

/// One held userfaultfd.
struct Held {
    userfault: Userfault,
    /// The process that handed it over, or that handed over the one of a parent of this memory.
    sender: Sender,
    /// The serial of the connection whose pager serves the memory; `None` when no pager does.
    server: Option<u64>,
    /// The process of the memory, 0 when unknown: named when the kernel does not say which thread
    /// faults.
    pid: u32,
    condemned: Option<Condemned>,
}

/// All held userfaultfds of children that no agent prepared, and of members whose connection has
/// ended.
#[derive(Default)]
pub struct Orphans {
    held: Vec<Held>,
    /// Messages that were not fetched yet.
    messages: Vec<String>,
    /// The sender that was last named because it left too many behind.
    named: Option<u32>,
}

impl Orphans {
    /// Holds the userfaultfd of a child made by a bare clone, which the member behind connection
    /// `server` serves.
    pub fn adopt(&mut self, userfault: Userfault, server: u64, sender: Sender) {
        self.hold(Held { userfault, sender, server: Some(server), pid: 0, condemned: None });
    }

    /// The number of userfaultfds that the member behind connection `server` serves.
    pub fn served_by(&self, server: u64) -> usize {
        self.held.iter().filter(|held| held.server == Some(server)).count()
    }

    /// Takes over the userfaultfds `own` of a member whose connection has ended; those of children
    /// that it served lose their server.
    pub fn server_left(&mut self, server: u64, sender: Sender, own: Vec<Userfault>) {
        for held in self.held.iter_mut().filter(|held| held.server == Some(server)) {
            held.server = None;
            make_readable(&held.userfault);
        }
        self.drop_gone();
        for userfault in own.into_iter().filter(|userfault| !userfault.is_orphaned()) {
            make_readable(&userfault);
            self.hold(Held { userfault, sender, server: None, pid: sender.pid, condemned: None });
        }
    }

    /// Holds one more; beyond the most that a sender may have it is closed, and the sender is
    /// named.
    fn hold(&mut self, new: Held) {
        let pid = new.sender.pid;
        if self.held.iter().filter(|held| held.sender.pid == pid).count() < HELD_PER_SENDER {
            self.held.push(new);
        } else if self.named.replace(pid) != Some(pid) {
            self.messages.push(format!(
                "folioswap: process {pid} left more than {HELD_PER_SENDER} memories behind; what was swapped out of the \
                 further ones is lost\n"
            ));
        }
    }

    /// Drops the userfaultfds whose memory does not exist any more.
    pub fn drop_gone(&mut self) {
        self.held.retain(|held| !held.userfault.is_orphaned());
    }

    /// Whether there is no userfaultfd to probe.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The userfaultfds on which faults may arrive that no pager serves.
    pub fn unserved(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held
            .iter()
            .filter(|held| held.server.is_none() && held.condemned.is_none())
            .map(|held| held.userfault.as_fd())
    }

    /// Reads the events that arrived on [`Orphans::unserved`], and condemns the processes that
    /// fault.
    pub fn read(&mut self, now: Instant) {
        let mut children = Vec::new();
        for held in self.held.iter_mut().filter(|held| held.server.is_none() && held.condemned.is_none()) {
            for _ in 0..EVENTS_PER_ROUND {
                let Some(event) = held.userfault.read_event() else { break };
                match event {
                    Event::Fault(thread) => {
                        let thread = if is_ours(thread) { thread } else { held.pid };
                        held.condemned = Some(Condemned { thread, due: now + DELAY });
                        break;
                    }
                    // A page that was shared is present: it was never taken out, and it may be
                    // written.
                    Event::Protected(address) => held.userfault.unprotect(address),
                    Event::Fork(child) => children.push((child, held.sender)),
                    Event::Mapping => {}
                }
            }
        }
        // Each stands for a process that lives: they need no other bound.
        for (userfault, sender) in children {
            make_readable(&userfault);
            self.held.push(Held { userfault, sender, server: None, pid: 0, condemned: None });
        }
    }

    /// When the next condemned process is to be ended.
    pub fn due(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| Some(held.condemned.as_ref()?.due)).min()
    }

    /// Ends the condemned processes that are due; returns the messages since the last call, one for
    /// each process.
    pub fn end_condemned(&mut self, now: Instant) -> Vec<String> {
        self.drop_gone();
        for held in &mut self.held {
            let Some(condemned) = held.condemned.take_if(|condemned| condemned.due <= now) else { continue };
            match end(condemned.thread, held.sender) {
                Fate::Ended(process, name) => self.messages.push(format!(
                    "folioswap: process {process} ({name}) was ended: the process that held its swapped memory has ended, and \
                     it would have read zeroes\n"
                )),
                Fate::Spared(process, name) => self.messages.push(format!(
                    "folioswap: process {process} ({name}) waits for memory that process {} held, which has ended and had no \
                     right to end it; end it by hand\n",
                    held.sender.pid
                )),
                Fate::Gone => {}
            }
        }
        std::mem::take(&mut self.messages)
    }
}

/// Whether this is a thread of a process below us. Our own threads are none.
fn is_ours(thread: u32) -> bool {
    let me = std::process::id();
    thread != 0
        && proc::identity(thread)
            .is_some_and(|identity| identity.process != me && proc::descends_from(identity.process, me))
}

/// Ends the process of a thread, if the sender of the userfaultfd on which the thread faulted might
/// end it too. The number of the thread may mean another one here, since the kernel gives it in the
/// thread's own process-id namespace.
fn end(thread: u32, sender: Sender) -> Fate {
    let process = proc::identity(thread).and_then(|identity| Pid::from_raw(identity.process as i32));
    let pidfd = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
    let (Some(process), Some(pidfd)) = (process, pidfd) else { return Fate::Gone };
    let pid = process.as_raw_pid() as u32;
    let (identity, ours) = (proc::identity(pid), is_ours(pid));
    let name = proc::name(pid);
    // The number cannot have meant another process meanwhile if the process still exists.
    let Some(identity) = identity.filter(|_| peer::exists(&pidfd)) else { return Fate::Gone };
    if !ours || !sender.may_end(identity.user) {
        return Fate::Spared(pid, name);
    }
    match pidfd_send_signal(&pidfd, Signal::KILL) {
        Ok(()) => Fate::Ended(pid, name),
        Err(_) => Fate::Gone,
    }
}

/// Makes a userfaultfd non-blocking, as poll(2) demands, and raises again the faults that were read
/// and not served. No pager reads it any more.
fn make_readable(userfault: &Userfault) {
    let _ = userfault.make_non_blocking();
    userfault.wake_all();
}

#[cfg(test)]
mod tests;

//! The userfaultfds that members hand over. Each is proven to be one before anything believes it,
//! one comes with a message, and a process may have so many.

use super::{
    Supervisor,
    bounds::Offence,
    connection::{Announced, PendingFork},
    members::{After, end_recorded},
};
use crate::processes::{peer, proc, userfault::Userfault};
use folioswap_group::{
    decisions::Forks,
    protocol::{ForkToken, RAW_CHILDREN_MAX},
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

/// The most userfaultfds of one connection's own. A member sends one, and a forked child was given
/// one before.
pub(super) const OWN_MAX: usize = 16;
/// The most children of one process that have not said hello. A member forks once at a time, and
/// drops a child that dies before its hello within 20 ms, which is ten between two of our looks.
pub(super) const PENDING_MAX: usize = 64;

/// How long a child that is not seen may take until its hello.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(3600);

impl Announced {
    /// Whether the child has ended, or its memory has. One that is not seen counts as ended after
    /// [`UNSEEN_PATIENCE`].
    fn is_gone(&self) -> bool {
        match self {
            Announced::Userfault(userfault) => userfault.is_orphaned(),
            Announced::Gated(process) => peer::has_ended(process),
            Announced::Unseen(since) => since.elapsed() > UNSEEN_PATIENCE,
        }
    }
}

/// The child that a process says to have made, by that process's number for it, 0 where it does
/// not know; `None`: it has ended.
fn gated_child(parent: u32, number: u64) -> Option<Announced> {
    let number = i32::try_from(number).ok().and_then(Pid::from_raw);
    let unseen = Announced::Unseen(Instant::now());
    let Some(number) = number.filter(|_| proc::shares_pid_namespace(parent)) else { return Some(unseen) };
    match pidfd_open(number, PidfdFlags::empty()) {
        // Any number could be named: only a process of this tree is held.
        Ok(process) if proc::descends_from(number.as_raw_pid() as u32, std::process::id()) => {
            Some(Announced::Gated(process))
        }
        Ok(_) | Err(Errno::SRCH) => None,
        Err(_) => Some(unseen),
    }
}

impl Supervisor {
    /// Holds a member's own userfaultfd.
    pub(super) fn hold_own(&mut self, index: usize, descriptors: Vec<OwnedFd>) -> After {
        let Some(userfault) = Userfault::only_of(descriptors) else {
            return self.offends(index, Offence::NoUserfault);
        };
        let own = &mut self.connections[index].userfaults;
        if own.len() >= OWN_MAX {
            return self.offends(index, Offence::OwnUserfaults);
        }
        own.push(userfault);
        After::Keep
    }

    /// Holds what a forked child gets until it says hello: its clusters, and the userfaultfd that
    /// the kernel made it, if it made one.
    pub(super) fn announce_fork(
        &mut self,
        index: usize,
        words: [u64; 3],
        descriptors: Vec<OwnedFd>,
    ) -> After {
        let token = ForkToken::of_message(words);
        let is_reported = self.settings.memory.group().decisions.forks() == Forks::Reported;
        // Of what the agent was put into, the gate makes the forks in any case.
        let child = if is_reported && (self.injector.is_none() || !descriptors.is_empty()) {
            match Userfault::only_of(descriptors) {
                Some(userfault) => Announced::Userfault(userfault),
                None => return self.offends(index, Offence::NoUserfault),
            }
        } else {
            match gated_child(self.connections[index].pid, words[2]) {
                Some(child) => child,
                // It has ended.
                None => return After::Keep,
            }
        };
        if token.is_none() {
            return After::Close;
        }
        let Some(entry) = self.connections[index].member() else { return After::Close };
        let parent = self.connections[index].pid;
        if self.pending_of(parent) >= PENDING_MAX {
            self.drop_gone_forks();
            self.drop_unseen_fork(parent);
        }
        if self.pending_of(parent) >= PENDING_MAX {
            return self.offends(index, Offence::PendingForks);
        }
        let connection = &mut self.connections[index];
        let clusters = self.clusters.share(self.settings.memory.writer(), &connection.clusters);
        let recorded = match (&mut self.recording, &mut connection.ring) {
            (Some(recording), Some(ring)) => Some(recording.forked(ring)),
            _ => None,
        };
        self.pending.push(PendingFork { token, parent, entry, child, clusters, recorded });
        After::Keep
    }

    /// Holds the userfaultfd of a child made by a bare clone, which the member serves.
    pub(super) fn hold_raw_child(&mut self, index: usize, descriptors: Vec<OwnedFd>) -> After {
        let Some(userfault) = Userfault::only_of(descriptors) else {
            return self.offends(index, Offence::NoUserfault);
        };
        let connection = &self.connections[index];
        let (serial, sender) = (connection.serial, connection.sender());
        if self.orphans.served_by(serial) >= RAW_CHILDREN_MAX {
            // The member may have noticed before us that some have ended.
            self.orphans.drop_gone();
        }
        if self.orphans.served_by(serial) >= RAW_CHILDREN_MAX {
            return self.offends(index, Offence::RawChildren);
        }
        self.orphans.adopt(userfault, serial, sender);
        After::Keep
    }

    /// Drops the announced children whose memory does not exist any more, and says why one of them
    /// ended if it could not join: it has told its parent's entry.
    pub(super) fn drop_gone_forks(&mut self) {
        let gone: Vec<_> = self.pending.extract_if(.., |fork| fork.child.is_gone()).collect();
        for fork in gone {
            self.take_back(&fork);
            self.say_why_child_failed(fork.parent, fork.entry);
        }
    }

    /// Drops one child of this process that is not seen, if there is one: it may never have been.
    fn drop_unseen_fork(&mut self, parent: u32) {
        let is_unseen =
            |fork: &PendingFork| fork.parent == parent && matches!(fork.child, Announced::Unseen(_));
        if let Some(index) = self.pending.iter().position(is_unseen) {
            let fork = self.pending.remove(index);
            self.take_back(&fork);
        }
    }

    /// Takes back what an announced child would have had.
    pub(super) fn take_back(&mut self, fork: &PendingFork) {
        self.clusters.drop_all(self.settings.memory.writer(), &fork.clusters);
        end_recorded(&mut self.recording, fork.recorded);
    }

    /// Says why a child of this process could not join, if it left a reason in the parent's entry.
    fn say_why_child_failed(&mut self, parent: u32, entry: u32) {
        let entry = &self.settings.memory.group().segment.members[entry as usize];
        let why = entry.child_failed.swap(0, Relaxed);
        // Any process of the group can write there.
        if (1..4096).contains(&why) {
            let why = Errno::from_raw_os_error(why as i32);
            self.say(&format!(
                "folioswap: a child of process {parent} ends, it cannot have what it inherited: it \
                 cannot reach the group ({why})\n"
            ));
        }
    }

    /// The announced children of a process, those of connections that have ended too: a child may
    /// outlive its parent before its hello.
    fn pending_of(&self, parent: u32) -> usize {
        self.pending.iter().filter(|fork| fork.parent == parent).count()
    }
}

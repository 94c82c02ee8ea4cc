//! Pagers that are processes of their own: each speaks for its parent, the program, whose memory it
//! shares.

use super::{Supervisor, connection::Connection};
use crate::{
    ipc::link::Remains,
    processes::{
        peer, proc,
        same_memory::{self, Proof},
    },
    report::outcome::Outcome,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::time::{Duration, Instant};

/// How long a pager may go on after the end of its program: it notices by itself, within a moment,
/// unless the program left a lock behind that the pager waits for.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a new image waits for the end of its predecessor's pager: what takes longer has much
/// memory to give back.
const PREDECESSOR: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How long after CMD that which it leaves behind may need to be known.
const SETTLES: Duration = Duration::from_millis(20);

/// The longest wait for pagers: one whose device does not answer ends when the kernel lets it.
const SETTLES_AT_LAST: Duration = Duration::from_secs(5);

/// What is to end before the outcome of CMD, which has ended, is reported.
pub(super) struct Settling {
    /// When the end of CMD was seen.
    since: Instant,
    /// The serials of the pagers whose programs had ended with CMD or before it: what these used is
    /// free only when they have ended too.
    pagers: Vec<u64>,
}

impl Settling {
    /// When the outcome is reported, unless the end of a pager, which wakes the supervisor, changes
    /// that.
    pub fn due(&self) -> Instant {
        self.since + if self.pagers.is_empty() { SETTLES } else { SETTLES_AT_LAST }
    }
}

/// A program, as its pager's connection knows it.
#[derive(Debug)]
pub struct Program {
    /// A pidfd of it.
    process: OwnedFd,
    /// The process id of the pager.
    pager: u32,
    /// Since when it is known that the program has ended.
    ended: Option<Instant>,
}

/// Why a process does not speak for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unproven {
    /// It has not the memory of its parent, or one of them has ended.
    No,
    /// We may not look at its parent, which has this number.
    Hidden(u32),
}

impl Program {
    /// The parent of the process `pager`, if it shares its memory; with its number.
    fn of_pager(pager: u32, itself: impl AsFd) -> Result<(u32, Program), Unproven> {
        let parent = || proc::state_and_parent(pager).map(|(_, parent)| parent).ok_or(Unproven::No);
        let number = parent()?;
        let pid = Pid::from_raw(number as i32).ok_or(Unproven::No)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| Unproven::No)?;
        let proof = same_memory::proof(pager, number);
        // Both numbers meant these processes if both exist still, and one is the other's child.
        if parent()? != number || !peer::exists(itself) || !peer::exists(&process) {
            return Err(Unproven::No);
        }
        match proof {
            Proof::Same => Ok((number, Program { process, pager, ended: None })),
            // The pager of a process that has just been killed is a child of its subreaper already.
            Proof::Hidden if number == std::process::id() => Err(Unproven::No),
            Proof::Other => Err(Unproven::No),
            Proof::Hidden => Err(Unproven::Hidden(number)),
        }
    }

    /// A pidfd of it.
    pub fn process(&self) -> &OwnedFd {
        &self.process
    }

    fn has_ended(&self) -> bool {
        peer::has_ended(&self.process)
    }
}

impl Connection {
    /// Makes the parent of the sender, which shares its memory, the process of this connection.
    ///
    /// # Errors
    /// Those of [`Program::of_pager`].
    fn speak_for_parent(&mut self) -> Result<(), Unproven> {
        let (number, program) = Program::of_pager(self.pid, &self.process)?;
        self.pid = number;
        self.program = Some(program);
        Ok(())
    }

    /// The process that shares the memory of the connection's process, and answers for it in
    /// `/proc`: the pager, or that process itself.
    pub fn pager_pid(&self) -> u32 {
        self.program.as_ref().map_or(self.pid, |program| program.pager)
    }

    /// Whether its pager is a process of its own whose program has ended.
    fn program_has_ended(&self) -> bool {
        self.program.as_ref().is_some_and(Program::has_ended)
    }

    /// Whether its pager, which is a process of its own, serves nobody any more: the program has
    /// ended a while ago, or is another image by exec.
    fn pager_is_stray(&mut self, now: Instant) -> bool {
        let pid = self.pid;
        let Some(program) = &mut self.program else { return false };
        if program.has_ended() {
            return now.duration_since(*program.ended.get_or_insert(now)) >= PATIENCE;
        }
        // A first thread that ends has no memory any more, though the others go on. The numbers
        // mean these processes while both exist.
        same_memory::share_memory(pid, program.pager) == Some(false)
            && proc::is_exiting(pid) == Some(false)
            && peer::exists(&self.process)
            && !program.has_ended()
            && proc::state_and_parent(program.pager).is_some_and(|(_, parent)| parent == pid)
    }
}

impl Supervisor {
    /// Has the sender of a hello speak for its parent.
    ///
    /// # Errors
    /// Why it may not: it is to be refused.
    pub(super) fn speak_for_parent(&mut self, index: usize, now: Instant) -> Result<(), Unproven> {
        self.connections[index].speak_for_parent()?;
        // The pager of the image that this process was before an exec. Its end is told to the
        // process by SIGCHLD: that must not come when the new image's own code runs already.
        let pid = self.connections[index].pid;
        let serial = self.connections[index].serial;
        let is_before = |connection: &Connection| connection.pid == pid && connection.serial != serial;
        self.end_stray_pagers(now, is_before);
        let before = self.connections.iter().filter(|connection| is_before(connection));
        let before: Vec<PollFd<'_>> = before
            .filter(|connection| connection.program.is_some())
            .map(|connection| PollFd::new(&connection.process, PollFlags::IN))
            .collect();
        for mut pager in before {
            let _ = poll(std::slice::from_mut(&mut pager), Some(&PREDECESSOR));
        }
        Ok(())
    }

    /// Names a forked child of which it cannot be proven that this is its pager, since we may not
    /// look at it, unless it has just been killed.
    pub(super) fn name_unproven(&mut self, unproven: Unproven) {
        let Unproven::Hidden(child) = unproven else { return };
        if proc::is_exiting(child) == Some(false) {
            let why = "it has become another user, and without CAP_SYS_PTRACE folioswap may not look at it";
            self.cannot_inherit(child, why);
        }
    }

    /// Ends the pagers among the chosen ones that serve nobody any more.
    pub(super) fn end_stray_pagers(&mut self, now: Instant, is_chosen: impl Fn(&Connection) -> bool) {
        for connection in self.connections.iter_mut().filter(|connection| is_chosen(connection)) {
            if connection.pager_is_stray(now) {
                // One that has ended meanwhile is gone all the same.
                let _ = pidfd_send_signal(&connection.process, Signal::KILL);
            }
        }
    }

    /// CMD's outcome, once it is to be reported: what CMD leaves behind is known only when the
    /// pagers of all that has ended have ended too, a moment later.
    pub(super) fn settled_outcome(&mut self, remains: Remains, now: Instant) -> Option<Outcome> {
        let outcome = self.ended.filter(|_| !self.reported)?;
        if remains == Remains::Nothing {
            self.drop_gone_forks();
        }
        self.end_stray_pagers(now, |_| true);
        let mut settling = self.settling.take().unwrap_or_else(|| {
            let without_program = self.connections.iter().filter(|it| it.program_has_ended());
            Settling { since: now, pagers: without_program.map(|it| it.serial).collect() }
        });
        settling.pagers.retain(|serial| self.index_of(*serial).is_some());
        let is_over = now >= settling.due();
        self.settling = Some(settling);
        (remains == Remains::Nothing || is_over).then_some(outcome)
    }
}

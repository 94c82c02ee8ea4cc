//! Freeze and thaw: all processes of the tree stop where they are, and go on later.
//!
//! The tree is stopped by SIGSTOP, so no cgroup is needed. Parents stop before their children, and
//! children go on before their parents: a parent that waits for stopped children (a shell) finds
//! none. A process that somebody else has stopped before stays stopped after the thaw.
//!
//! Pagers go on: they serve whoever reads the memory of a process that is stopped.
//! Judgements that rest on time (reports that memory is used up, connections that say nothing) wait
//! for the thaw.

use super::Supervisor;
use crate::processes::{proc, same_memory};
use folioswap_group::{decisions::Progress, protocol::ChangeEnd};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    collections::HashSet,
    thread,
    time::{Duration, Instant},
};

/// Walks over the tree in a row that must find no running process: a fork that had begun before its
/// parent was stopped ends within the first of them.
const QUIET_WALKS: u32 = 3;
/// The most walks. Each stops all that it finds, so only a group that forks faster than it is
/// walked needs more.
const WALKS_MAX: u32 = 200;
/// The time between two walks.
const PAUSE: Duration = Duration::from_millis(1);

/// The processes that a freeze has stopped, parents before children.
#[derive(Default)]
pub(super) struct Frozen(Vec<(u32, OwnedFd)>);

impl Supervisor {
    /// Stops all processes of the tree. If one cannot be stopped, the others go on.
    pub(super) fn freeze(&mut self) -> ChangeEnd {
        let charge = self.settings.memory.group().certain_charge_bytes();
        match stop_tree() {
            Ok(stopped) => {
                // Somebody else may have let processes go on meanwhile: they stand still again.
                self.frozen.get_or_insert_default().0.extend(stopped.0);
                self.settings.memory.writer().set_progress(Progress::Frozen);
                ChangeEnd::Done { charge }
            }
            Err(process) => ChangeEnd::Unstoppable { process },
        }
    }

    /// Lets the processes go on that the freeze has stopped. Of a group that is not frozen nothing
    /// changes.
    pub(super) fn thaw(&mut self, now: Instant) -> ChangeEnd {
        if let Some(frozen) = self.frozen.take() {
            self.settings.memory.writer().set_progress(Progress::GoesOn);
            self.shortage.begin_anew();
            for connection in &mut self.connections {
                connection.silent_since = connection.silent_since.map(|_| now);
            }
            frozen.go_on();
        }
        ChangeEnd::Done { charge: self.settings.memory.group().certain_charge_bytes() }
    }
}

impl Frozen {
    /// Whether one of the processes stands still: whoever sent SIGCONT to all has ended the freeze.
    pub(super) fn stands_still(&self) -> bool {
        self.0.iter().any(|(pid, _)| proc::state_and_parent(*pid).is_some_and(|(state, _)| state == 'T'))
    }

    fn go_on(self) {
        for (_, process) in self.0.iter().rev() {
            // A process that was killed meanwhile needs no signal.
            let _ = pidfd_send_signal(process, Signal::CONT);
        }
    }
}

/// Stops all descendants of this process; fails with one that cannot be stopped, and lets the
/// others go on then.
fn stop_tree() -> Result<Frozen, u32> {
    let (mut frozen, mut known) = (Frozen::default(), HashSet::new());
    let (mut quiet, mut last) = (0, 0);
    for _ in 0..WALKS_MAX {
        let mut found = 0;
        for pid in proc::descendants(std::process::id()) {
            if known.contains(&pid) || same_memory::is_pager(pid) {
                continue;
            }
            match stop(pid) {
                Ok(Stop::Sent(process)) => {
                    frozen.0.push((pid, process));
                    found += 1;
                    last = pid;
                }
                Ok(Stop::NotNeeded) => {}
                Err(_) => {
                    frozen.go_on();
                    return Err(pid);
                }
            }
            known.insert(pid);
        }
        quiet = if found == 0 { quiet + 1 } else { 0 };
        if quiet == QUIET_WALKS {
            return Ok(frozen);
        }
        thread::sleep(PAUSE);
    }
    frozen.go_on();
    Err(last)
}

/// What became of the attempt to stop a process.
enum Stop {
    /// The signal was sent.
    Sent(OwnedFd),
    /// The process has ended, or somebody else has stopped it.
    NotNeeded,
}

fn stop(pid: u32) -> Result<Stop, Errno> {
    let Some(number) = Pid::from_raw(pid as i32) else { return Ok(Stop::NotNeeded) };
    let process = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(Stop::NotNeeded),
        Err(errno) => return Err(errno),
    };
    match proc::state_and_parent(pid) {
        None | Some(('T' | 'X', _)) => return Ok(Stop::NotNeeded),
        // The first thread of a process may have ended (Z) while others go on.
        Some(_) => {}
    }
    match pidfd_send_signal(&process, Signal::STOP) {
        Ok(()) => Ok(Stop::Sent(process)),
        Err(Errno::SRCH) => Ok(Stop::NotNeeded),
        Err(errno) => Err(errno),
    }
}

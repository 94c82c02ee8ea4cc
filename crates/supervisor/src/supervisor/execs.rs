//! Execs of files that cannot preload the agent: a thread of ours follows each, and puts the agent
//! into the new image.

use super::{Supervisor, members::After};
use crate::{
    ipc::{link::Packet, wire},
    processes::{
        inject::{Injector, NotInjected},
        proc,
    },
};
use folioswap_group::protocol::{Kind, Message};
use rustix::{fd::OwnedFd, thread::set_name};
use std::{
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// The most execs that are followed at a time; others run unmanaged.
const EXECS_MAX: usize = 64;

/// The execs that are followed: each thread that follows one has a reference.
#[derive(Default)]
pub(super) struct Execs {
    /// Why programs have not got the agent.
    failures: Mutex<Vec<String>>,
}

impl Execs {
    /// Notes why what a process executes has not got the agent.
    fn note(&self, process: u32, why: &dyn Display) {
        let name = proc::name(process);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.push(format!("folioswap: what {name} (process {process}) executes runs unmanaged: {why}\n"));
    }
}

impl Supervisor {
    /// Follows the exec of a thread, by its own number for it, of the process at the other end.
    pub(super) fn follow_exec(&mut self, index: usize, number: u64) -> After {
        let connection = &self.connections[index];
        let process = connection.pid;
        let thread = proc::thread_numbered(process, number);
        let (Some(injector), Some(thread)) = (self.injector.clone(), thread) else { return After::Close };
        let Ok(socket) = connection.socket.try_clone() else { return After::Close };
        if Arc::strong_count(&self.execs) > EXECS_MAX {
            self.execs.note(process, &"too many others begin at the same time");
            return After::Close;
        }
        let execs = Arc::clone(&self.execs);
        // Without a thread the program gets no answer, and its image runs unmanaged.
        let _ = thread::Builder::new().stack_size(128 << 10).spawn(move || {
            let _ = set_name(c"folioswap-exec");
            if let Err(why) = follow(&injector, process, thread, &socket) {
                execs.note(process, &why);
            }
        });
        // The thread has a descriptor of its own.
        After::Close
    }

    /// Says why programs have not got the agent, and stops the front with a CMD that was stopped
    /// while it was followed.
    pub(super) fn tend_execs(&self) {
        let Some(injector) = &self.injector else { return };
        let is_stopped = |pid| proc::state_and_parent(pid).is_some_and(|(state, _)| state == 'T');
        if injector.take_stopped(is_stopped).contains(&self.cmd) && self.frozen.is_none() {
            self.link.iter().for_each(|link| link.send(&Packet::Stopped(self.cmd)));
        }
        let mut failures = self.execs.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.drain(..).for_each(|message| self.say(&message));
    }
}

/// Follows one exec to its end.
fn follow(injector: &Injector, process: u32, thread: u32, socket: &OwnedFd) -> Result<(), NotInjected> {
    let tracee = injector.trace(process, thread);
    let answer = Message::new(Kind::Followed, [u64::from(tracee.is_ok()), 0, 0]);
    let _ = wire::send(socket, &answer, &[]);
    match injector.follow(tracee?, socket) {
        // It has failed, or the program says so itself.
        Err(NotInjected::NoExec | NotInjected::Privileged) => Ok(()),
        result => result,
    }
}

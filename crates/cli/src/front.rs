//! The process that the user started: passes signals on, prints what the supervisor says, exits with CMD's status.

use crate::STATUS_REFUSED;
use folioswap_supervisor::{
    ipc::link::{Link, Packet, Remains},
    processes::{descriptors, proc, signals::Signals},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid},
};

/// Waits until CMD has ended; returns the status to exit with.
pub fn wait_for(supervisor: i32, link: &Link, signals: &Signals, stderr: Option<&OwnedFd>) -> i32 {
    // A pipeline must end when CMD and its children are done: we keep standard error alone.
    descriptors::leave_standard();
    let mut kept = vec![link.as_fd(), signals.as_fd()];
    kept.extend(stderr.map(AsFd::as_fd));
    descriptors::close_all_but(&kept);
    loop {
        let mut waiting = [PollFd::new(signals, PollFlags::IN), PollFd::new(link, PollFlags::IN)];
        // A failure (EINTR) only means that we look earlier.
        let _ = poll(&mut waiting, None);
        // Signals first: after a stop, SIGCONT has to reach CMD before an old "CMD stopped" is read.
        while let Some(signal) = signals.next() {
            if signal.is_forwarded() {
                link.send(&Packet::Forward(signal));
            }
        }
        loop {
            match link.receive() {
                Ok(Packet::Text(text)) => print(stderr, &text),
                Ok(Packet::Stopped(pid)) => stop_with(pid),
                Ok(Packet::Ended(status, remains)) => {
                    if remains == Remains::Nothing {
                        wait_for_end(supervisor);
                    }
                    return status;
                }
                Ok(Packet::Forward(_)) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return supervisor_lost(stderr),
            }
        }
    }
}

fn print(stderr: Option<&OwnedFd>, mut text: &[u8]) {
    let Some(stderr) = stderr else { return };
    while !text.is_empty() {
        match rustix::io::write(stderr, text) {
            Ok(written) => text = &text[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // Somebody made the terminal non-blocking.
                let _ = poll(&mut [PollFd::new(stderr, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

/// CMD stopped: we stop as well, so that the shell takes its terminal back. Unless it goes on already.
fn stop_with(pid: u32) {
    if proc::state_and_parent(pid).is_some_and(|(state, _)| matches!(state, 'T' | 't')) {
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

fn wait_for_end(supervisor: i32) {
    if let Some(pid) = Pid::from_raw(supervisor) {
        while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

/// The supervisor was killed. Members notice it themselves; everybody else is ours now.
fn supervisor_lost(stderr: Option<&OwnedFd>) -> i32 {
    proc::kill_descendants();
    let text = "folioswap: the supervisor process was killed; ended CMD and everything that it started, since nothing \
                would hold the limit any more\n";
    print(stderr, text.as_bytes());
    STATUS_REFUSED
}

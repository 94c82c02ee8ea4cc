//! The front, the process that the user started: it passes signals on, prints the text that the
//! supervisor sends, and exits with the status of CMD.

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
    // A pipeline must end when CMD and its children are done, so the front keeps only standard
    // error.
    descriptors::leave_standard();
    let mut kept = vec![link.as_fd(), signals.as_fd()];
    kept.extend(stderr.map(AsFd::as_fd));
    descriptors::close_all_but(&kept);
    loop {
        let mut waiting = [PollFd::new(signals, PollFlags::IN), PollFd::new(link, PollFlags::IN)];
        // An error (EINTR) only makes the loop look earlier.
        let _ = poll(&mut waiting, None);
        // Signals come first: after a stop, SIGCONT has to reach CMD before an old "CMD stopped" is
        // read.
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
                // Another process made the terminal non-blocking.
                let _ = poll(&mut [PollFd::new(stderr, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

/// Stops this process as CMD has stopped, so that the shell takes its terminal back; unless CMD
/// runs again already.
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

/// Ends the tree when the supervisor was killed. Members notice that themselves; all other
/// processes have become descendants of this one.
fn supervisor_lost(stderr: Option<&OwnedFd>) -> i32 {
    proc::kill_descendants();
    let text = "folioswap: the supervisor process was killed; ended CMD and everything that it started, since nothing \
                would hold the limit any more\n";
    print(stderr, text.as_bytes());
    STATUS_REFUSED
}

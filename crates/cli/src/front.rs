//! The front, the process that the user started: it passes signals on, prints the text that the
//! supervisor sends, and exits with the status of CMD.

use crate::{STATUS_REFUSED, container_kills::ContainerKills};
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

/// What the front has.
pub struct Front<'a> {
    /// The link to the supervisor.
    pub link: &'a Link,
    /// The signals of this process.
    pub signals: &'a Signals,
    /// Standard error, if it is open.
    pub stderr: Option<&'a OwnedFd>,
    /// The kernel's kills at the limit of the container, if it has one.
    pub container: Option<ContainerKills>,
}

impl Front<'_> {
    /// Waits until CMD has ended; returns the status to exit with.
    pub fn wait_for(&self, supervisor: i32) -> i32 {
        let (link, signals) = (self.link, self.signals);
        // A pipeline must end when CMD and its children are done, so the front keeps only standard
        // error.
        descriptors::leave_standard();
        let mut kept = vec![link.as_fd(), signals.as_fd()];
        kept.extend(self.stderr.map(AsFd::as_fd));
        descriptors::close_all_but(&kept);
        loop {
            let mut waiting = [PollFd::new(signals, PollFlags::IN), PollFd::new(link, PollFlags::IN)];
            // An error (EINTR) only makes the loop look earlier.
            let _ = poll(&mut waiting, None);
            // Signals come first: after a stop, SIGCONT has to reach CMD before an old "CMD
            // stopped" is read.
            while let Some(signal) = signals.next() {
                if signal.is_forwarded() {
                    link.send(&Packet::Forward(signal));
                }
            }
            loop {
                match link.receive() {
                    Ok(Packet::Text(text)) => self.print(&text),
                    Ok(Packet::Stopped(pid)) => stop_with(pid),
                    Ok(Packet::Ended(status, remains)) => {
                        if remains == Remains::Nothing {
                            wait_for_end(supervisor);
                        }
                        self.name_kills();
                        return status;
                    }
                    Ok(Packet::Forward(_)) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => return self.supervisor_lost(),
                }
            }
        }
    }

    fn print(&self, text: &[u8]) {
        self.stderr.into_iter().for_each(|stderr| print(stderr, text));
    }

    /// Names what ended processes beside us, of which they could say nothing.
    fn name_kills(&self) {
        let message = self.container.as_ref().and_then(ContainerKills::message);
        message.into_iter().for_each(|text| self.print(text.as_bytes()));
    }

    /// Ends the tree when the supervisor was killed. Members notice that themselves; all other
    /// processes have become descendants of this one.
    fn supervisor_lost(&self) -> i32 {
        proc::kill_descendants();
        self.print(
            b"folioswap: the supervisor process was killed; ended CMD and everything that it started, since nothing \
              would hold the limit any more\n",
        );
        self.name_kills();
        STATUS_REFUSED
    }
}

fn print(stderr: &OwnedFd, mut text: &[u8]) {
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

//! Memory whose pager is, or may be, gone.
//!
//! The supervisor holds a duplicate of every userfaultfd, since memory whose last userfaultfd is
//! closed reads as zeroes. When the connection of a pager ends while the memory that it served
//! still exists, nothing can bring the pages back: the first process that touches one is ended,
//! with one message.

use super::{
    proc,
    userfault::{self, Event},
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, Signal, kill_process},
};
use std::time::{Duration, Instant};

/// A fault on unserved memory is a loss only if the memory still exists after this time, because
/// processes that are just ending fault too.
const DELAY: Duration = Duration::from_millis(100);

/// A process whose fault waits, and the time when the process is to be ended.
struct Condemned {
    pid: u32,
    due: Instant,
}

/// One held userfaultfd.
struct Held {
    userfault: OwnedFd,
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
}

impl Orphans {
    /// Holds the userfaultfd of a child made by a bare clone, which the member behind connection
    /// `server` serves.
    pub fn adopt(&mut self, userfault: OwnedFd, server: u64) {
        self.held.push(Held { userfault, server: Some(server), pid: 0, condemned: None });
    }

    /// Takes over the userfaultfds `own` of a member whose connection has ended; those of children
    /// that it served lose their server.
    pub fn server_left(&mut self, server: u64, pid: u32, own: Vec<OwnedFd>) {
        for held in self.held.iter_mut().filter(|held| held.server == Some(server)) {
            held.server = None;
            make_readable(&held.userfault);
        }
        for userfault in own {
            make_readable(&userfault);
            self.held.push(Held { userfault, server: None, pid, condemned: None });
        }
        self.drop_gone();
    }

    /// Drops the userfaultfds whose memory does not exist any more.
    pub fn drop_gone(&mut self) {
        self.held.retain(|held| !userfault::is_orphaned(&held.userfault));
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
            while let Some(event) = userfault::read_event(&held.userfault) {
                match event {
                    Event::Fault(thread) => {
                        let ours = thread != 0 && proc::descends_from(thread, std::process::id());
                        let pid = if ours { thread } else { held.pid };
                        held.condemned = Some(Condemned { pid, due: now + DELAY });
                        break;
                    }
                    // A page that was shared is present: it was never taken out, and it may be
                    // written.
                    Event::Protected(address) => userfault::unprotect(&held.userfault, address),
                    Event::Fork(child) => children.push(child),
                    Event::Mapping => {}
                }
            }
        }
        for userfault in children {
            make_readable(&userfault);
            self.held.push(Held { userfault, server: None, pid: 0, condemned: None });
        }
    }

    /// When the next condemned process is to be ended.
    pub fn due(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| Some(held.condemned.as_ref()?.due)).min()
    }

    /// Ends the condemned processes that are due; returns a message for each.
    pub fn end_condemned(&mut self, now: Instant) -> Vec<String> {
        self.drop_gone();
        let mut messages = Vec::new();
        for held in &mut self.held {
            let Some(condemned) = held.condemned.take_if(|condemned| condemned.due <= now) else { continue };
            let name = proc::status(condemned.pid).map_or_else(|| "?".to_owned(), |status| status.name);
            let killed = Pid::from_raw(condemned.pid as i32)
                .is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok());
            if killed {
                messages.push(format!(
                    "folioswap: process {} ({name}) was ended: the process that held its swapped memory has ended, and it \
                     would have read zeroes\n",
                    condemned.pid
                ));
            }
        }
        messages
    }
}

/// Makes a userfaultfd non-blocking, as poll(2) demands, and raises again the faults that were read
/// and not served. No pager reads it any more.
fn make_readable(userfault: &OwnedFd) {
    if let Ok(flags) = fcntl_getfl(userfault) {
        let _ = fcntl_setfl(userfault, flags | OFlags::NONBLOCK);
    }
    userfault::wake_all(userfault);
}

//! Memory whose pager is, or may be, gone.
//!
//! The supervisor holds a duplicate of every userfaultfd, since memory whose last userfaultfd is closed reads as zeroes.
//! When the connection of the pager that served one ends and the memory still exists, nobody can bring its pages back: the
//! first process that touches one is ended, with one message.

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

/// A fault on unserved memory is a loss only if the memory still exists after this time: processes that are just ending
/// fault too.
const DELAY: Duration = Duration::from_millis(100);

/// Whose fault waits, and since when its end is due.
struct Condemned {
    pid: u32,
    due: Instant,
}

struct Held {
    userfault: OwnedFd,
    /// Serial of the connection that serves it; `None`: nobody.
    server: Option<u64>,
    /// The process whose memory it is, if known, to be named when the kernel does not say who faults.
    pid: u32,
    condemned: Option<Condemned>,
}

/// All held descriptors of children that no agent prepared, and of members whose connection has ended.
#[derive(Default)]
pub struct Orphans {
    held: Vec<Held>,
}

impl Orphans {
    /// A child made by a bare clone; the member behind connection `server` serves it.
    pub fn adopt(&mut self, userfault: OwnedFd, server: u64) {
        self.held.push(Held { userfault, server: Some(server), pid: 0, condemned: None });
    }

    /// A connection has ended: `own` are the member's userfaultfds; those of children that it served stay here.
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

    /// Drops those whose memory does not exist any more.
    pub fn drop_gone(&mut self) {
        self.held.retain(|held| !userfault::is_orphaned(&held.userfault));
    }

    /// True when nothing has to be probed.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Descriptors on which faults may arrive that nobody serves.
    pub fn unserved(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held
            .iter()
            .filter(|held| held.server.is_none() && held.condemned.is_none())
            .map(|held| held.userfault.as_fd())
    }

    /// Reads what arrived on them.
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
                    // What was shared is present: it may be written, and nothing of it was ever taken out.
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

    /// When the next end is due.
    pub fn due(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| Some(held.condemned.as_ref()?.due)).min()
    }

    /// Ends those that are due; returns a message for each.
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

/// Non-blocking, as poll(2) on a userfaultfd demands. Nobody else reads it any more: faults that were read and not served are
/// raised again.
fn make_readable(userfault: &OwnedFd) {
    if let Ok(flags) = fcntl_getfl(userfault) {
        let _ = fcntl_setfl(userfault, flags | OFlags::NONBLOCK);
    }
    userfault::wake_all(userfault);
}

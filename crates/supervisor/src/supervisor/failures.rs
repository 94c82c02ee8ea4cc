//! Failures of devices: each is named and counted, and a device that fails too often leaves the
//! rotation.

use super::{Supervisor, connection::Pager, members::After};
use crate::clusters::{Clusters, SlotError, is_full};
use folioswap_group::{
    devices::{DeviceKind, ERRORS_MAX},
    protocol::{Ending, Invariant, Lost, Note},
};
use rustix::io::Errno;
use std::{io, path::Path};

/// The refused writes of a device that are reported one by one.
const TOLD: u32 = 4;
/// The lost pages that are named one by one; a device that is gone may have held any number of
/// them.
const NAMED: u64 = 32;

/// How the server of a network device is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    /// The server is away, and got no request.
    NotAsked,
    /// The server got a request, and may still carry it out.
    Unanswered,
    /// Another export answers in its place: the device is lost for good.
    Replaced,
}

/// The error of this number; `None` for one that no error has, 0 for example: the device has ended.
fn named(errno: i32) -> Option<Errno> {
    (1..4096).contains(&errno).then(|| Errno::from_raw_os_error(errno))
}

impl Supervisor {
    /// Takes a note of a process on itself or on a device. One that is no member has neither pages
    /// nor clusters: only its reasons for not being one are believed.
    pub(super) fn note(&mut self, index: usize, [note, first, second]: [u64; 3]) -> After {
        let connection = &self.connections[index];
        let (pid, note) = (connection.pid, Note::from_number(note));
        if !connection.is_member() && !matches!(note, Some(Note::NoUserfault | Note::Ends)) {
            return After::Close;
        }
        match note {
            Some(Note::NoUserfault) => {
                self.census.cannot_have_userfault(pid);
                self.cmd_was_member &= pid != self.cmd;
            }
            Some(Note::Poisoned) => self.page_lost(index, first, Lost::unpack(second)),
            Some(Note::WriteFailed) => self.write_failed(index, first, second as i32),
            Some(Note::Violation) => {
                let what = Invariant::from_number(first)
                    .map_or_else(|| first.to_string(), |invariant| format!("{invariant:?}"));
                self.say(&format!("folioswap: process {pid}: invariant violated: {what} ({second:#x})\n"));
            }
            Some(Note::Confined) => self.name_confined(pid),
            // Whoever was ended has been named.
            Some(Note::Ends) if self.connections[index].pager == Pager::Failed => {}
            Some(Note::Ends) => {
                let why =
                    Ending::from_number(first).map_or_else(|| first.to_string(), |ending| ending.to_string());
                let system = match second {
                    0 => String::new(),
                    errno => format!(": {}", io::Error::from_raw_os_error(errno as i32)),
                };
                self.say(&format!("folioswap: process {pid} ends: {why}{system}\n"));
            }
            None => {}
        }
        After::Keep
    }

    /// Names the first process whose memory stays because it has put a filter before its calls.
    fn name_confined(&mut self, pid: u32) {
        if !core::mem::replace(&mut self.has_named_confined, true) {
            self.say(&format!(
                "folioswap: process {pid} has put a filter before its own system calls (seccomp): from now on its memory stays, and that \
                 of others which do so, since without CAP_SYS_PTRACE folioswap must see each call\n"
            ));
        }
    }

    /// Reports and counts a page whose bytes are lost; its process has poisoned it.
    fn page_lost(&mut self, index: usize, address: u64, lost: Lost) {
        let pid = self.connections[index].pid;
        self.pages_lost += 1;
        if self.pages_lost > NAMED {
            if self.pages_lost == NAMED + 1 {
                self.say(
                    "folioswap: more pages are lost; they are counted (pages_poisoned) and no longer named\n",
                );
            }
            self.count_lost(index, lost);
            return;
        }
        let page = format!("folioswap: process {pid}: its page at {address:#x} is lost");
        let then = "it gets SIGBUS if it touches that page";
        let (slot, what) = match lost {
            Lost::Corrupt => {
                return self.say(&format!("{page}: what was stored for it is damaged; {then}\n"));
            }
            Lost::Missing => return self.say(&format!("{page}: nothing is stored for it; {then}\n")),
            Lost::CorruptOnDevice { slot } => (slot, "gives other bytes than were written".to_owned()),
            Lost::Unreadable { slot, errno: 0 } => (slot, "ends before it".to_owned()),
            Lost::Unreadable { slot, errno } => {
                (slot, format!("cannot be read: {}", io::Error::from_raw_os_error(errno.into())))
            }
        };
        let Some((device, within)) = self.clusters.locate(slot) else {
            return self.say(&format!("{page}: no device has its slot; {then}\n"));
        };
        let name = self.device_name(device).display().to_string();
        self.say(&format!("{page}: {name} {what} (slot {within}); {then}\n"));
        self.count_lost(index, lost);
    }

    /// Reports and counts a refused write in a slot that the member owns. The pages went elsewhere,
    /// or stay in memory.
    fn write_failed(&mut self, index: usize, slot: u64, errno: i32) {
        let Some((device, within)) = self.clusters.locate(slot) else { return };
        if !Clusters::owns(&self.connections[index].clusters, slot) {
            return;
        }
        let (name, error) =
            (self.device_name(device).display().to_string(), io::Error::from_raw_os_error(errno));
        let errno = named(errno);
        if errno.is_some_and(is_full) {
            // The file has holes that its disk cannot fill: the device takes no more until a
            // cluster is free.
            let entry = self.settings.memory.writer().device(device);
            if !entry.entry().is_full() {
                entry.mark_full();
                self.say(&format!("folioswap: {name} has no room left ({error}); nothing is lost\n"));
            }
            return;
        }
        match self.absence(device, errno) {
            // The connection itself reports when it is lost and when it is back.
            Some(Absence::NotAsked) => return,
            Some(Absence::Unanswered) => {
                self.clusters.retire(slot);
                return;
            }
            Some(Absence::Replaced) => return self.fail(device),
            None => {}
        }
        if self.clusters.retire(slot) == SlotError::Known {
            return;
        }
        if self.errors_of(device) < TOLD {
            self.say(&format!(
                "folioswap: {name} refused a write: {error} (slot {within}); the slot is used no more, nothing is lost\n"
            ));
        }
        self.count_error(device);
    }

    /// Reports and counts devices that could not reserve a cluster; that counts as a refused write.
    pub(super) fn reserve_failed(&mut self) {
        for (device, errno) in self.clusters.take_failures() {
            if self.errors_of(device) < TOLD {
                let (name, error) = (self.device_name(device).display(), io::Error::from(errno));
                self.say(&format!(
                    "folioswap: {name} cannot give room for more pages: {error}; nothing is lost\n"
                ));
            }
            self.count_error(device);
        }
    }

    /// Counts a lost page as an error of its device, unless its server is only away, the process
    /// does not own the slot, or the slot was counted before.
    fn count_lost(&mut self, index: usize, lost: Lost) {
        let Some(slot) = lost.slot() else { return };
        let Some((device, _)) = self.clusters.locate(slot) else { return };
        if !Clusters::owns(&self.connections[index].clusters, slot) {
            return;
        }
        let absence = match lost {
            Lost::Unreadable { errno, .. } => self.absence(device, named(errno.into())),
            _ => None,
        };
        match absence {
            None if self.clusters.note_error(slot) == SlotError::Known => {}
            None => self.count_error(device),
            Some(Absence::Replaced) => self.fail(device),
            Some(Absence::NotAsked | Absence::Unanswered) => {}
        }
    }

    /// The absence of a server that this error of a network device implies.
    fn absence(&self, device: usize, errno: Option<Errno>) -> Option<Absence> {
        let (description, _) = self.settings.memory.group().decisions.devices().nth(device)?;
        match (description.kind, errno?) {
            (DeviceKind::Nbd, Errno::HOSTDOWN) => Some(Absence::NotAsked),
            (DeviceKind::Nbd, Errno::TIMEDOUT | Errno::CONNRESET) => Some(Absence::Unanswered),
            (DeviceKind::Nbd, Errno::NODEV) => Some(Absence::Replaced),
            _ => None,
        }
    }

    /// Takes the device out of the rotation: nothing more is written to it.
    fn fail(&mut self, device: usize) {
        self.settings.memory.writer().device(device).fail();
    }

    /// Counts an error, and takes the device out of the rotation when it has failed too often.
    fn count_error(&mut self, device: usize) {
        let errors = self.settings.memory.writer().device(device).count_error();
        if errors == ERRORS_MAX {
            self.fail(device);
            let name = self.device_name(device).display();
            self.say(&format!(
                "folioswap: {name} has failed {errors} times: nothing more is written to it; what lies there is still read. \
                 Look at the disk\n"
            ));
        }
    }

    /// The errors of a device that were counted.
    fn errors_of(&self, device: usize) -> u32 {
        self.settings.memory.group().decisions.devices[device].errors()
    }

    fn device_name(&self, device: usize) -> &Path {
        &self.settings.devices.devices[device].name
    }
}

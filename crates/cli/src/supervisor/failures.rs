//! What devices fail at: named, counted, and too often for one that stays in the rotation.

use super::Supervisor;
use folioswap_group::{devices::ERRORS_MAX, protocol::Lost};
use std::{io, path::Path, sync::atomic::Ordering::Relaxed};

/// Refused writes of a device that are told one by one.
const TOLD: u32 = 4;

impl Supervisor {
    /// A page's bytes are lost; its process has poisoned it.
    pub(super) fn page_lost(&mut self, pid: u32, address: u64, lost: Lost) {
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
        self.count_error(device);
    }

    /// A device refused a write. Its pages went elsewhere, or stay in memory.
    pub(super) fn write_failed(&mut self, slot: u64, errno: i32) {
        let Some((device, within)) = self.clusters.locate(slot) else { return };
        let (name, error) =
            (self.device_name(device).display().to_string(), io::Error::from_raw_os_error(errno));
        if matches!(errno, libc::ENOSPC | libc::EDQUOT | libc::EFBIG) {
            // Its file has holes that its disk cannot fill: until a cluster is free it takes no more.
            let was_full = self.settings.segment.mapped.devices[device].full.swap(1, Relaxed);
            if was_full == 0 {
                self.say(&format!("folioswap: {name} has no room left ({error}); nothing is lost\n"));
            }
            return;
        }
        self.clusters.retire(slot);
        if self.settings.segment.mapped.devices[device].errors.load(Relaxed) < TOLD {
            self.say(&format!(
                "folioswap: {name} refused a write: {error} (slot {within}); the slot is used no more, nothing is lost\n"
            ));
        }
        self.count_error(device);
    }

    /// Takes the device out of the rotation when it has failed too often.
    fn count_error(&mut self, device: usize) {
        let entry = &self.settings.segment.mapped.devices[device];
        let errors = entry.errors.fetch_add(1, Relaxed) + 1;
        if errors == ERRORS_MAX {
            entry.failed.store(1, Relaxed);
            let name = self.device_name(device).display();
            self.say(&format!(
                "folioswap: {name} has failed {errors} times: nothing more is written to it; what lies there is still read. \
                 Look at the disk\n"
            ));
        }
    }

    fn device_name(&self, device: usize) -> &Path {
        &self.settings.devices.devices[device].name
    }
}

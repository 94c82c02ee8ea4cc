//! The available list: devices with free slots, highest priority first, equal priorities in
//! rotation (spec §2.5, §4).

use crate::entry::{DEVICES_MAX, DeviceId, DeviceMask};
use crate::lock::SpinLock;
use crate::sync::{AtomicU8, AtomicU32, Ordering};

/// At most 32 device numbers in order of use. Zeroed memory is an empty list. Context of every
/// method: available-list lock held.
#[repr(C)]
pub(crate) struct AvailableList {
    pub(crate) lock: SpinLock,
    length: AtomicU32,
    devices: [AtomicU8; DEVICES_MAX],
}

impl AvailableList {
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn get(&self, position: usize) -> Option<DeviceId> {
        if position >= self.length() {
            return None;
        }
        DeviceId::new(u32::from(self.devices[position].load(Ordering::Relaxed)))
    }

    pub(crate) fn position(&self, device: DeviceId) -> Option<usize> {
        (0..self.length()).find(|position| self.get(*position) == Some(device))
    }

    fn set(&self, position: usize, device: DeviceId) {
        self.devices[position].store(device.index() as u8, Ordering::Relaxed);
    }

    /// Puts `device` behind all devices of at least its priority. No effect if it is on the list.
    pub(crate) fn insert(&self, device: DeviceId, priority_of: impl Fn(DeviceId) -> i32) {
        if self.position(device).is_some() {
            return;
        }
        let length = self.length();
        let key = priority_of(device);
        let mut position = length;
        while let Some(before) = position.checked_sub(1).and_then(|before| self.get(before)) {
            if priority_of(before) >= key {
                break;
            }
            self.set(position, before);
            position -= 1;
        }
        self.set(position, device);
        self.length.store(length as u32 + 1, Ordering::Relaxed);
    }

    /// Takes `device` off the list. No effect if it is not on it.
    pub(crate) fn remove(&self, device: DeviceId) {
        let Some(position) = self.position(device) else { return };
        let length = self.length();
        for index in position..length - 1 {
            let after = self.devices[index + 1].load(Ordering::Relaxed);
            self.devices[index].store(after, Ordering::Relaxed);
        }
        self.length.store(length as u32 - 1, Ordering::Relaxed);
    }

    /// Moves `device` behind all others of its priority.
    pub(crate) fn requeue(&self, device: DeviceId, priority_of: impl Fn(DeviceId) -> i32) {
        if self.position(device).is_some() {
            self.remove(device);
            self.insert(device, priority_of);
        }
    }

    /// The first device that is in `among`.
    pub(crate) fn first_in(&self, among: DeviceMask) -> Option<DeviceId> {
        (0..self.length()).filter_map(|position| self.get(position)).find(|device| among.contains(*device))
    }
}

//! The right to write a device's entry.

use super::{DeviceDescription, DeviceEntry, DeviceUsage};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// A device's entry, for the owner of the decisions in which it lies: see
/// [`DecisionsWriter::device`](crate::decisions::DecisionsWriter::device).
#[derive(Clone, Copy)]
pub struct DeviceWriter<'a>(&'a DeviceEntry);

impl<'a> DeviceWriter<'a> {
    /// The caller has the right to write the decisions that this entry is a part of.
    pub(crate) const fn new(entry: &'a DeviceEntry) -> Self {
        DeviceWriter(entry)
    }

    /// The entry, for reading.
    pub const fn entry(self) -> &'a DeviceEntry {
        self.0
    }

    /// Fills the entry in, once. From then on the device exists.
    pub fn describe(self, device: DeviceDescription) {
        self.0.priority.store(device.priority, Relaxed);
        self.0.io.store(device.io as u32, Relaxed);
        self.0.first_cluster.store(device.first_cluster, Relaxed);
        self.0.clusters.store(device.clusters, Relaxed);
        self.0.contents.store(device.contents as u32, Relaxed);
        self.0.kind.store(device.kind as u32, Release);
    }

    /// Publishes how many clusters have an owner.
    pub fn set_clusters_used(self, clusters: u32) {
        self.0.clusters_used.store(clusters, Relaxed);
    }

    /// Says that no cluster can be granted now.
    pub fn mark_full(self) {
        self.0.full.store(1, Relaxed);
    }

    /// Says that a cluster can be granted.
    pub fn mark_with_space(self) {
        self.0.full.store(0, Relaxed);
    }

    /// Counts a read or write that failed for good; returns how many there were with it.
    pub fn count_error(self) -> u32 {
        self.0.errors.fetch_add(1, Relaxed) + 1
    }

    /// Takes the device out of the rotation: nothing more is written to it.
    pub fn fail(self) {
        self.0.failed.store(1, Relaxed);
    }

    /// Says whether the device is in use. Members look again when
    /// [`devices_have_changed`](crate::decisions::DecisionsWriter::devices_have_changed) was
    /// called.
    pub fn set_usage(self, usage: DeviceUsage) {
        self.0.usage.store(usage as u32, Release);
    }

    /// Sets the folio orders that the device takes, a bit each. Called before the device is
    /// described.
    pub fn take_orders(self, orders: u16) {
        self.0.orders_refused.store(u32::from(!orders), Relaxed);
    }
}

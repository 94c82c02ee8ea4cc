//! The right to write the decisions of a group.

use super::{
    Decisions, Failures, GroupState, MAGIC, PAGE_CLUSTER_DEFAULT, Pressure, Progress, Scope, VERSION, Way,
};
use crate::devices::{DeviceDescription, DeviceWriter};
use crate::folio_orders::FolioOrders;
use crate::segment::Segment;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

/// The decisions of a group, for their owner: the supervisor, or the embedder. Members have
/// `&Decisions` and no way to make one of these, so that no store of theirs compiles.
#[derive(Clone, Copy)]
pub struct DecisionsWriter<'a>(&'a Decisions);

impl<'a> DecisionsWriter<'a> {
    /// Claims the right to write.
    ///
    /// # Safety
    /// The calling process must have the decisions in memory that it may write. In a member of
    /// `folioswap run` they are mapped for reading, and each store is a SIGSEGV.
    pub const unsafe fn new(decisions: &'a Decisions) -> Self {
        DecisionsWriter(decisions)
    }

    /// The decisions, for reading.
    pub const fn decisions(self) -> &'a Decisions {
        self.0
    }

    /// Fills in new, all-zero decisions, the limit in bytes. Folios of every size are allowed, and
    /// readahead is as in the kernel. Called before any member connects.
    pub fn initialise(
        self,
        supervisor_pid: u32,
        limit_bytes: u64,
        scope: Scope,
        devices: impl IntoIterator<Item = DeviceDescription>,
    ) {
        self.0.supervisor_pid.store(supervisor_pid, Relaxed);
        self.set_limit_bytes(limit_bytes);
        self.0.scope.store(scope as u32, Relaxed);
        for (entry, device) in self.0.devices.iter().zip(devices) {
            DeviceWriter::new(entry).describe(device);
        }
        self.set_page_cluster(PAGE_CLUSTER_DEFAULT);
        self.set_folio_orders(FolioOrders::ALL);
        self.0.version.store(VERSION, Relaxed);
        self.0.magic.store(MAGIC, Release);
    }

    /// Sets the limit of the whole group, in bytes.
    pub fn set_limit_bytes(self, bytes: u64) {
        self.0.limit_bytes.store(bytes, Relaxed);
    }

    /// Says whether the group runs.
    pub fn set_state(self, state: GroupState) {
        self.0.state.store(state as u32, Relaxed);
    }

    /// Says whether the processes of the group go on.
    pub fn set_progress(self, progress: Progress) {
        self.0.progress.store(progress as u32, Relaxed);
    }

    /// Publishes the pressure of the group.
    pub fn publish_pressure(self, pressure: Pressure) {
        let Pressure { some, some_total_us, full, full_total_us } = pressure;
        for (word, value) in self.0.pressure.iter().zip(some.into_iter().chain(full)) {
            word.store(value, Relaxed);
        }
        self.0.pressure_totals_us[0].store(some_total_us, Relaxed);
        self.0.pressure_totals_us[1].store(full_total_us, Relaxed);
    }

    /// Publishes what a walk over the processes that no member counts has found, in bytes.
    pub fn publish_census(self, unmanaged_bytes: u64) {
        self.0.unmanaged_bytes.store(unmanaged_bytes, Relaxed);
        self.0.census_walks.fetch_add(1, Relaxed);
    }

    /// Counts bytes that no member counts. For an embedder, which takes no census.
    pub fn add_unmanaged(self, bytes: u64) {
        self.0.unmanaged_bytes.fetch_add(bytes, Relaxed);
    }

    /// The inverse of [`DecisionsWriter::add_unmanaged`].
    pub fn take_unmanaged(self, bytes: u64) {
        self.0.unmanaged_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Publishes how many bytes of memory the shared devices hold.
    pub fn set_device_bytes(self, bytes: u64) {
        self.0.device_bytes.store(bytes, Relaxed);
    }

    /// Has members check every invariant from time to time. Called before any member connects.
    pub fn want_validation(self) {
        self.0.validate.store(1, Relaxed);
    }

    /// Has members take out everything that may leave. Called before any member connects.
    pub fn evict_all(self) {
        self.0.evict_all.store(1, Relaxed);
    }

    /// Has calls of members fail at random. Called before any member connects.
    pub fn want_failures(self, failures: Failures) {
        self.0.failure_seed.store(failures.seed, Relaxed);
        self.0.failure_rate.store(failures.rate, Relaxed);
    }

    /// Sets the way in which programs are managed. Called before any member connects.
    pub fn set_way(self, way: Way) {
        self.0.way.store(way as u32, Relaxed);
    }

    /// Sets the folio sizes that members may make. Called before any member connects.
    pub fn set_folio_orders(self, orders: FolioOrders) {
        self.0.orders_always.store(orders.always, Relaxed);
        self.0.orders_madvise.store(orders.madvise, Relaxed);
    }

    /// Sets the readahead from slow devices, as a power of two of pages. Called before any member
    /// connects.
    pub fn set_page_cluster(self, pages: u32) {
        self.0.page_cluster.store(pages, Relaxed);
    }

    /// The entry of a device, for writing.
    ///
    /// # Panics
    /// For a number from [`DEVICES_MAX`](crate::devices::DEVICES_MAX) on.
    pub fn device(self, number: usize) -> DeviceWriter<'a> {
        DeviceWriter::new(&self.0.devices[number])
    }

    /// Says that a device was added, or that its usage has changed. The caller wakes the members.
    pub fn devices_have_changed(self) {
        self.0.devices_changed.fetch_add(1, Release);
    }

    /// Publishes the number of owners of a cluster.
    ///
    /// # Panics
    /// For a number from [`CLUSTERS_MAX`](super::CLUSTERS_MAX) on.
    pub fn set_owners(self, cluster: u32, owners: u32) {
        self.0.cluster_owners[cluster as usize].store(owners, Relaxed);
    }

    /// Takes a free seat for a process, and prepares its entry of the segment; `None` when all are
    /// taken.
    pub fn assign(self, segment: &Segment, pid: u32) -> Option<u32> {
        let index = self.0.seats.iter().position(|seat| !seat.is_live())?;
        segment.members[index].begin();
        self.0.seats[index].take(pid);
        self.0.seats_high.fetch_max(index as u32 + 1, AcqRel);
        Some(index as u32)
    }

    /// Sets the weight of a member; 0 is the default.
    pub fn set_weight(self, id: u32, weight: u32) {
        if let Some(seat) = self.0.seat(id) {
            seat.set_weight(weight);
        }
    }

    /// Frees the seat of a process that has ended, after its figures were read.
    pub fn release(self, segment: &Segment, id: u32) {
        let (Some(seat), Some(member)) = (self.0.seat(id), segment.member(id)) else { return };
        member.end(&segment.header);
        seat.leave();
        segment.header.charge_sank.fetch_add(1, Release);
    }

    /// [`DecisionsWriter::release`], after which the counters of the process are among those of the
    /// ended members. For the supervisor: one thread may do so at a time.
    pub fn retire(self, segment: &Segment, id: u32) {
        let Some(member) = segment.member(id) else { return };
        self.0.ended_changes.fetch_add(1, SeqCst);
        self.0.ended.add_counters(&member.figures);
        self.release(segment, id);
        self.0.ended_changes.fetch_add(1, SeqCst);
    }
}

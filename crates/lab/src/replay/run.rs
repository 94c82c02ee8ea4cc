//! Replays a prepared trace.
//!
//! Real threads share the logical CPUs (CPU modulo threads). Operations on the slots of one
//! recorded cluster happen in the recorded order. Each waits until its predecessor is done; only
//! earlier operations delay it, so there is no deadlock. Everything else runs freely.

use super::devices::Device;
use super::moments::Watch;
use super::prepare::{Op, OpKind, Prepared};
use super::replayed::{ReplayError, Replayed};
use crate::allocator::{Allocator, CLUSTER};
use crate::policies::{Inherited, Locks, PolicyName, WithPolicy};
use crate::wear::Wear;
use folioswap_slots::{
    AllocError, ConfigError, DeviceId, DeviceMask, DiscardOutcome, FolioId, Hooks, LogicalCpu, Order, Policy,
    Reclaimed, Relax, Shadow, Slots, SwapEntry,
};
use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Instant;

/// The slot is only cached.
const KEPT: u64 = 1 << 63;
/// A thread is changing a kept slot.
const BUSY: u64 = 1 << 62;
/// There is no slot: out of swap, or reclaimed while it was only cached.
const NONE: u64 = 1 << 61;

/// The replay to make.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The policy.
    pub policy: PolicyName,
    /// Devices, at least one.
    pub devices: Vec<Device>,
    /// Real threads, at least 1.
    pub threads: u32,
    /// Number of logical CPUs, if not the trace's: recorded CPUs are taken modulo this.
    pub cpus: Option<u32>,
    /// Whether lock acquisitions are counted, which costs time.
    pub locks: Locks,
    /// How often the allocator is looked at meanwhile, evenly spaced; 0: never. Only one thread
    /// may replay then.
    pub moments: u32,
}

/// Replays a prepared trace.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(prepared: &Prepared, options: &Replay) -> Result<Replayed, ReplayError> {
    let task = Task { prepared, options };
    match options.locks {
        Locks::Uncounted => options.policy.apply(task),
        Locks::Counted => options.policy.apply_counted(task),
    }
}

/// Replays a prepared trace through a policy of one's own; that of `options` and its `locks` are
/// not used.
///
/// # Errors
/// [`ReplayError`].
pub fn replay_with<P: Policy>(prepared: &Prepared, options: &Replay) -> Result<Replayed, ReplayError> {
    Task { prepared, options }.run::<P>()
}

struct Task<'a> {
    prepared: &'a Prepared,
    options: &'a Replay,
}

impl WithPolicy for Task<'_> {
    type Output = Result<Replayed, ReplayError>;

    fn run<P: Policy>(self) -> Self::Output {
        let Task { prepared, options } = self;
        let cpus = options.cpus.unwrap_or(prepared.cpus).max(1);
        let unsized_devices =
            options.devices.iter().filter(|device| device.pages.is_none()).count().max(1) as u64;
        let pages = (prepared.slots_peak * 5 / 4 / unsized_devices + 1).next_multiple_of(CLUSTER)
            + u64::from(cpus) * CLUSTER / unsized_devices;
        let clusters: u64 =
            options.devices.iter().map(|device| device.pages.unwrap_or(pages).div_ceil(CLUSTER)).sum();
        let clusters = u32::try_from(clusters).map_err(|_| ConfigError::InvalidConfig)?;
        if options.devices.is_empty() {
            return Err(ReplayError::NoDevice);
        }
        if options.moments > 0 && options.threads > 1 {
            return Err(ReplayError::MomentsOfThreads);
        }
        let allocator: Allocator<P> = Allocator::new(cpus, clusters)?;
        let mut ids = Vec::new();
        for (index, device) in options.devices.iter().enumerate() {
            let on = allocator.slots().swapon(device.spec(pages));
            ids.push(on.map_err(|source| ReplayError::Swapon { number: index + 1, source })?);
        }
        let threads = options.threads.max(1);
        let replayer = Replayer::new(allocator.slots(), &ids, &options.devices, pages, prepared);
        // Numbers of operations, because the operations themselves take four times the memory.
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); threads as usize];
        if threads > 1 {
            for (number, op) in (0..).zip(&prepared.ops) {
                parts[(u32::from(op.cpu) % cpus % threads) as usize].push(number);
            }
        }
        let inherited = Inherited::of_this_thread();
        let mut watch = (options.moments > 0).then(|| Watch::new(allocator.slots(), &replayer.wear, &ids));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let replayer = &replayer;
            if threads == 1 {
                let watch = watch.as_mut();
                scope.spawn(move || {
                    inherited.take_over();
                    match watch {
                        Some(watch) => replayer.work_watched(&prepared.ops, cpus, options.moments, watch),
                        None => replayer.work(prepared.ops.iter(), cpus),
                    }
                });
                return;
            }
            for part in &parts {
                scope.spawn(move || {
                    inherited.take_over();
                    replayer.work(part.iter().map(|number| &prepared.ops[*number as usize]), cpus);
                });
            }
        });
        let wall_ns = begin.elapsed().as_nanos() as u64;
        allocator.slots().validate().map_err(ReplayError::Inconsistent)?;
        let stats = allocator.slots().stats();
        let info = |id| allocator.slots().device_info(id).map_or((0, 0), |info| (info.pages, info.inuse));
        Ok(Replayed {
            policy: options.policy,
            threads,
            cpus,
            operations: prepared.ops.len() as u64,
            wall_ns,
            allocated: stats.allocated,
            fallback: stats.fallback,
            clusters_scanned: stats.clusters_scanned,
            locks: allocator.slots().lock_stats().map(|locks| {
                [locks.cluster, locks.list, locks.available, locks.local]
                    .map(|lock| (lock.acquired, lock.contended))
            }),
            devices: ids.into_iter().map(info).collect(),
            slots_ever_written: replayer.wear.slots_ever_written(),
            clusters_discarded: replayer.wear.clusters_discarded(),
            odd: prepared.odd,
            moments: watch.map(Watch::end),
        })
    }
}

pub(super) struct Replayer<'a, P: Policy> {
    pub(super) slots: &'a Slots<0, P>,
    pub(super) wear: Wear,
    /// The devices that discard.
    pub(super) discarding: Vec<DeviceId>,
    /// State by number of the recorded slot: 0, the replayed entry (perhaps with [`KEPT`] or
    /// [`BUSY`]), or [`NONE`].
    pub(super) entries: Vec<AtomicU64>,
    /// Sequence number of the next operation of each recorded cluster.
    pub(super) next: Vec<AtomicU32>,
}

/// Takes slots that are only cached back when the allocator wants them.
struct TakeBack<'a, 'b, P: Policy>(&'a Replayer<'b, P>);

impl<P: Policy> Hooks for TakeBack<'_, '_, P> {
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        let Some(state) = self.0.entries.get(folio.0 as usize) else { return Reclaimed::Absent };
        let raw = entry.to_raw();
        if state.compare_exchange(raw | KEPT, raw | BUSY, AcqRel, Relaxed).is_err() {
            return Reclaimed::Kept(1);
        }
        self.0.leave_cache(entry, 1, folio);
        state.store(NONE, Release);
        Reclaimed::Freed(1)
    }

    fn discard(&self, _device: DeviceId, _first: u64, _slots: u32) -> DiscardOutcome {
        self.0.wear.discard_cluster();
        DiscardOutcome::Done
    }
}

/// Slots of a folio that was split in the recording but got slots in the replay. They serve the
/// order-0 allocations that follow.
pub(super) struct Surplus {
    entry: SwapEntry,
    left: u32,
}

impl<'a, P: Policy> Replayer<'a, P> {
    /// Replays on these devices, which have these numbers; one without a size has so many pages.
    pub(super) fn new(
        slots: &'a Slots<0, P>,
        ids: &[DeviceId],
        devices: &[Device],
        pages: u64,
        prepared: &Prepared,
    ) -> Self {
        let sizes = devices.iter().map(|device| device.pages.unwrap_or(pages));
        let discards = ids.iter().copied().zip(devices.iter().map(|device| device.discard));
        Replayer {
            slots,
            wear: Wear::new(ids.iter().copied().zip(sizes)),
            discarding: discards.filter(|(_, discards)| *discards).map(|(id, _)| id).collect(),
            entries: (0..prepared.clusters as u64 * CLUSTER).map(|_| AtomicU64::new(0)).collect(),
            next: (0..prepared.clusters).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl<P: Policy> Replayer<'_, P> {
    fn work<'o>(&self, ops: impl Iterator<Item = &'o Op>, cpus: u32) {
        let mut surplus = HashMap::new();
        self.carry_out(ops, cpus, &mut surplus);
        self.give_back(surplus);
    }

    /// The same for all operations, with a look at the allocator now and then.
    fn work_watched(&self, ops: &[Op], cpus: u32, looks: u32, watch: &mut Watch<'_, P>) {
        let mut surplus = HashMap::new();
        let mut done = 0;
        watch.take(0);
        for look in 1..=looks as usize {
            let end = ops.len() * look / looks as usize;
            if end > done {
                self.carry_out(ops[done..end].iter(), cpus, &mut surplus);
                watch.take(end as u64);
                done = end;
            }
        }
        self.give_back(surplus);
    }

    fn carry_out<'o>(
        &self,
        ops: impl Iterator<Item = &'o Op>,
        cpus: u32,
        surplus: &mut HashMap<u16, Surplus>,
    ) {
        for op in ops {
            let cpu = LogicalCpu(u32::from(op.cpu) % cpus);
            if op.kind == OpKind::Fallback {
                self.apply(cpu, op, surplus);
                continue;
            }
            let next = &self.next[op.first as usize / CLUSTER as usize];
            let mut spins = 0u32;
            while next.load(Acquire) != op.sequence {
                spins += 1;
                if spins.is_multiple_of(64) {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            self.apply(cpu, op, surplus);
            next.store(op.sequence + 1, Release);
        }
    }

    /// Carries one operation out. Context: its predecessors are done.
    pub(super) fn apply(&self, cpu: LogicalCpu, op: &Op, surplus: &mut HashMap<u16, Surplus>) {
        match op.kind {
            OpKind::Alloc => self.alloc(cpu, op, surplus),
            OpKind::Free => self.free(op),
            OpKind::Retain => self.retain(op),
            OpKind::Reuse => self.reuse(cpu, op),
            OpKind::Fallback => self.fall_back(cpu, op, surplus),
        }
        self.run_discards();
    }

    /// The device that has the first slot of an operation now.
    pub(super) fn device_of(&self, op: &Op) -> Option<DeviceId> {
        let state = self.entries.get(op.first as usize)?.load(Relaxed);
        SwapEntry::from_raw(state & !(KEPT | BUSY)).filter(|_| state != NONE).map(SwapEntry::device)
    }

    /// Frees what no operation used.
    pub(super) fn give_back(&self, surplus: HashMap<u16, Surplus>) {
        for rest in surplus.into_values() {
            self.put(rest.entry, rest.left);
        }
    }

    fn alloc_folio(&self, cpu: LogicalCpu, order: Order, folio: u32) -> Result<SwapEntry, AllocError> {
        let folio = FolioId(folio);
        let entry = self.slots.alloc_folio_with(cpu, order, folio, DeviceMask::ALL, &TakeBack(self))?;
        self.wear.write(entry, order.slots());
        self.leave_cache(entry, order.slots(), folio);
        Ok(entry)
    }

    fn fall_back(&self, cpu: LogicalCpu, op: &Op, surplus: &mut HashMap<u16, Surplus>) {
        if let Some(rest) = surplus.remove(&op.cpu) {
            self.put(rest.entry, rest.left);
        }
        let Some(order) = Order::new(op.slots.trailing_zeros()) else { return };
        // No recorded slot has this number: nothing of the folio stays in the cache.
        if let Ok(entry) = self.alloc_folio(cpu, order, u32::MAX >> 1) {
            surplus.insert(op.cpu, Surplus { entry, left: order.slots() });
        }
    }

    fn alloc(&self, cpu: LogicalCpu, op: &Op, surplus: &mut HashMap<u16, Surplus>) {
        let Some(order) = Order::new(op.slots.trailing_zeros()) else { return };
        if order == Order::ZERO
            && let Some(rest) = surplus.get_mut(&op.cpu)
        {
            self.set(op.first, rest.entry.to_raw());
            rest.left -= 1;
            match rest.entry.checked_add(1) {
                Some(next) if rest.left > 0 => rest.entry = next,
                _ => drop(surplus.remove(&op.cpu)),
            }
            return;
        }
        if let Ok(entry) = self.alloc_folio(cpu, order, op.first) {
            for step in 0..u32::from(op.slots) {
                self.set(op.first + step, entry.to_raw() + u64::from(step));
            }
            return;
        }
        for step in 0..u32::from(op.slots) {
            // For a single page, order 0 has just failed.
            let entry = if order > Order::ZERO {
                self.alloc_folio(cpu, Order::ZERO, op.first + step).ok()
            } else {
                None
            };
            self.set(op.first + step, entry.map_or(NONE, SwapEntry::to_raw));
        }
    }

    fn set(&self, slot: u32, value: u64) {
        self.entries[slot as usize].store(value, Release);
    }

    /// The replayed entry of a slot, and whether it was kept; clears [`KEPT`].
    fn take(&self, slot: u32) -> (Option<SwapEntry>, Kept) {
        let state = &self.entries[slot as usize];
        loop {
            let value = state.load(Acquire);
            if value & BUSY != 0 {
                P::Relax::relax(0);
                continue;
            }
            if value & KEPT == 0 {
                return (SwapEntry::from_raw(value).filter(|_| value & NONE == 0), Kept::No);
            }
            let entry = value & !KEPT;
            if state.compare_exchange(value, entry, AcqRel, Relaxed).is_ok() {
                return (SwapEntry::from_raw(entry), Kept::Yes);
            }
        }
    }

    fn free(&self, op: &Op) {
        let mut run: Option<(SwapEntry, u32)> = None;
        for slot in op.first..op.first + u32::from(op.slots) {
            let (entry, kept) = self.take(slot);
            self.set(slot, 0);
            let Some(entry) = entry else { continue };
            if kept == Kept::Yes {
                self.leave_cache(entry, 1, FolioId(slot));
                continue;
            }
            run = match run {
                Some((first, length))
                    if first.checked_add(u64::from(length)) == Some(entry)
                        && entry.slot_in_cluster() != 0 =>
                {
                    Some((first, length + 1))
                }
                before => {
                    if let Some((first, length)) = before {
                        self.put(first, length);
                    }
                    Some((entry, 1))
                }
            };
        }
        if let Some((first, length)) = run {
            self.put(first, length);
        }
    }

    fn retain(&self, op: &Op) {
        for slot in op.first..op.first + u32::from(op.slots) {
            let (Some(entry), _) = self.take(slot) else { continue };
            if self.slots.vm_swap_full() {
                // More than half of the swap is used, so nothing is kept.
                self.put(entry, 1);
                self.set(slot, NONE);
                continue;
            }
            if self.slots.cache_insert(entry, Order::ZERO, FolioId(slot)).is_ok() {
                self.put(entry, 1);
                self.set(slot, entry.to_raw() | KEPT);
            }
        }
    }

    fn reuse(&self, cpu: LogicalCpu, op: &Op) {
        for slot in op.first..op.first + u32::from(op.slots) {
            match self.take(slot) {
                (Some(entry), Kept::Yes) => {
                    let raised = self.slots.dup(entry, 1);
                    debug_assert!(raised.is_ok());
                    self.leave_cache(entry, 1, FolioId(slot));
                }
                (Some(_), Kept::No) => {}
                (None, _) => {
                    let entry = self.alloc_folio(cpu, Order::ZERO, slot).ok();
                    self.set(slot, entry.map_or(NONE, SwapEntry::to_raw));
                }
            }
        }
    }

    /// The work item that the kernel queues when a cluster becomes empty. It runs before the next
    /// operation.
    fn run_discards(&self) {
        for &id in &self.discarding {
            if self.slots.discards_pending(id) > 0 {
                self.slots.run_discards(id, &TakeBack(self));
            }
        }
    }

    fn put(&self, entry: SwapEntry, slots: u32) {
        let put = self.slots.put(entry, slots, |_, _| {});
        debug_assert!(put.is_ok_and(|put| put.rejected == 0));
    }

    fn leave_cache(&self, entry: SwapEntry, slots: u32, folio: FolioId) {
        let left = self.slots.cache_remove(entry, slots, folio, Shadow::EMPTY, |_, _| {});
        debug_assert!(left.is_ok());
    }
}

#[derive(PartialEq, Eq)]
enum Kept {
    Yes,
    No,
}

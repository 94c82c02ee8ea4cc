//! The replay itself.
//!
//! Real threads share the logical CPUs among them (CPU modulo threads). Operations on the slots of one recorded cluster happen in recorded order:
//! each waits for its turn, which only earlier operations delay, so there is no deadlock; everything else runs freely.

use super::devices::Device;
use super::prepare::{Kind, Odd, Op, Prepared};
use crate::memory::Engine;
use crate::policies::{Locks, PolicyName, WithPolicy};
use folioswap_slots::{
    AllocError, ConfigError, DeviceMask, FolioId, Hooks, LogicalCpu, ORDERS, Order, Policy, Reclaimed,
    Shadow, Slots, SwapEntry, SwaponError, Violation,
};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Instant;

const CLUSTER: u64 = 512;
/// The slot is only cached.
const KEPT: u64 = 1 << 63;
/// Somebody changes a kept slot.
const BUSY: u64 = 1 << 62;
/// There is no slot: out of swap, or taken back while it was only cached.
const NONE: u64 = 1 << 61;

/// What to replay on what.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Policy.
    pub policy: PolicyName,
    /// At least one.
    pub devices: Vec<Device>,
    /// Real threads, at least 1.
    pub threads: u32,
    /// Logical CPUs of the trace are taken modulo this, if given.
    pub cpus: Option<u32>,
    /// Whether lock acquisitions are counted, which costs time.
    pub locks: Locks,
}

/// What a replay counted.
#[derive(Debug, Clone, Serialize)]
pub struct Result {
    /// Policy.
    pub policy: PolicyName,
    /// Real threads.
    pub threads: u32,
    /// Logical CPUs.
    pub cpus: u32,
    /// Operations of the trace.
    pub operations: u64,
    /// Wall time, ns.
    pub wall_ns: u64,
    /// Allocations that succeeded, per order (those of split folios are in order 0).
    pub allocated: [u64; ORDERS],
    /// Allocations that failed, per order.
    pub fallback: [u64; ORDERS],
    /// Clusters isolated and scanned, per order.
    pub clusters_scanned: [u64; ORDERS],
    /// Acquisitions and how many of them found the lock taken: of clusters, lists, available list, logical CPUs.
    pub locks: Option<[(u64, u64); 4]>,
    /// Size and use at the end of each device, pages.
    pub devices: Vec<(u64, u64)>,
    /// What was set right in the trace.
    pub odd: Odd,
}

/// Why a replay did not take place, or what it found.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// One of the devices.
    #[error("device {number} cannot be switched on: {source}")]
    Swapon {
        /// From 1 on.
        number: usize,
        /// Why.
        source: SwaponError,
    },
    /// No device.
    #[error("there is no device to replay on")]
    NoDevice,
    /// An invariant of the allocator does not hold after the replay: a mistake in folioswap.
    #[error("the allocator is not consistent after the replay ({0}); please report this")]
    Inconsistent(Violation),
}

/// Replays a prepared trace.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(prepared: &Prepared, options: &Replay) -> std::result::Result<Result, ReplayError> {
    options.policy.apply(options.locks, Task { prepared, options })
}

struct Task<'a> {
    prepared: &'a Prepared,
    options: &'a Replay,
}

impl WithPolicy for Task<'_> {
    type Output = std::result::Result<Result, ReplayError>;

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
        let engine: Engine<P> = Engine::new(cpus, clusters)?;
        let mut ids = Vec::new();
        for (index, device) in options.devices.iter().enumerate() {
            let on = engine.slots().swapon(device.spec(pages));
            ids.push(on.map_err(|source| ReplayError::Swapon { number: index + 1, source })?);
        }
        let threads = options.threads.max(1);
        let shared = Shared {
            slots: engine.slots(),
            places: (0..prepared.clusters as u64 * CLUSTER).map(|_| AtomicU64::new(0)).collect(),
            turns: (0..prepared.clusters).map(|_| AtomicU32::new(0)).collect(),
        };
        let mut parts: Vec<Vec<Op>> = vec![Vec::new(); threads as usize];
        for op in &prepared.ops {
            parts[(u32::from(op.cpu) % cpus % threads) as usize].push(*op);
        }
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for part in &parts {
                let shared = &shared;
                scope.spawn(move || shared.work(part, cpus));
            }
        });
        let wall_ns = begin.elapsed().as_nanos() as u64;
        engine.slots().validate().map_err(ReplayError::Inconsistent)?;
        let stats = engine.slots().stats();
        let info = |id| engine.slots().device_info(id).map_or((0, 0), |info| (info.pages, info.inuse));
        Ok(Result {
            policy: options.policy,
            threads,
            cpus,
            operations: prepared.ops.len() as u64,
            wall_ns,
            allocated: stats.allocated,
            fallback: stats.fallback,
            clusters_scanned: stats.clusters_scanned,
            locks: engine.slots().lock_stats().map(|locks| {
                [locks.cluster, locks.list, locks.available, locks.local]
                    .map(|lock| (lock.acquired, lock.contended))
            }),
            devices: ids.into_iter().map(info).collect(),
            odd: prepared.odd,
        })
    }
}

struct Shared<'a, P: Policy> {
    slots: &'a Slots<0, P>,
    /// By number of the recorded slot: 0, the replayed entry (perhaps [`KEPT`], [`BUSY`]), or [`NONE`].
    places: Vec<AtomicU64>,
    /// By recorded cluster: the operation that is to come next.
    turns: Vec<AtomicU32>,
}

/// Takes slots that are only cached back when the allocator wants them.
struct TakeBack<'a, 'b, P: Policy>(&'a Shared<'b, P>);

impl<P: Policy> Hooks for TakeBack<'_, '_, P> {
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        let Some(place) = self.0.places.get(folio.0 as usize) else { return Reclaimed::Absent };
        let raw = entry.to_raw();
        if place.compare_exchange(raw | KEPT, raw | BUSY, AcqRel, Relaxed).is_err() {
            return Reclaimed::Kept(1);
        }
        self.0.leave_cache(entry, 1, folio);
        place.store(NONE, Release);
        Reclaimed::Freed(1)
    }
}

/// Slots of a folio that was split in the recording but found room in the replay: they serve the order-0 allocations that follow.
struct Room {
    entry: SwapEntry,
    left: u32,
}

impl<P: Policy> Shared<'_, P> {
    fn work(&self, ops: &[Op], cpus: u32) {
        let mut rooms: HashMap<u16, Room> = HashMap::new();
        for op in ops {
            let cpu = LogicalCpu(u32::from(op.cpu) % cpus);
            if op.kind == Kind::Fallback {
                self.fall_back(cpu, op, &mut rooms);
                continue;
            }
            let turn = &self.turns[op.first as usize / CLUSTER as usize];
            let mut spins = 0u32;
            while turn.load(Acquire) != op.turn {
                spins += 1;
                if spins.is_multiple_of(64) {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            match op.kind {
                Kind::Alloc => self.alloc(cpu, op, &mut rooms),
                Kind::Free => self.free(op),
                Kind::Retain => self.retain(op),
                Kind::Reuse => self.reuse(cpu, op),
                Kind::Fallback => {}
            }
            turn.store(op.turn + 1, Release);
        }
        for room in rooms.into_values() {
            self.put(room.entry, room.left);
        }
    }

    fn alloc_folio(
        &self,
        cpu: LogicalCpu,
        order: Order,
        folio: u32,
    ) -> std::result::Result<SwapEntry, AllocError> {
        let folio = FolioId(folio);
        let entry = self.slots.alloc_folio_with(cpu, order, folio, DeviceMask::ALL, &TakeBack(self))?;
        self.leave_cache(entry, order.slots(), folio);
        Ok(entry)
    }

    fn fall_back(&self, cpu: LogicalCpu, op: &Op, rooms: &mut HashMap<u16, Room>) {
        if let Some(room) = rooms.remove(&op.cpu) {
            self.put(room.entry, room.left);
        }
        let Some(order) = Order::new(op.slots.trailing_zeros()) else { return };
        // A number that no recorded slot has: nothing of it stays in the cache.
        if let Ok(entry) = self.alloc_folio(cpu, order, u32::MAX >> 1) {
            rooms.insert(op.cpu, Room { entry, left: order.slots() });
        }
    }

    fn alloc(&self, cpu: LogicalCpu, op: &Op, rooms: &mut HashMap<u16, Room>) {
        let Some(order) = Order::new(op.slots.trailing_zeros()) else { return };
        if order == Order::ZERO
            && let Some(room) = rooms.get_mut(&op.cpu)
        {
            self.set(op.first, room.entry.to_raw());
            room.left -= 1;
            match room.entry.checked_add(1) {
                Some(next) if room.left > 0 => room.entry = next,
                _ => drop(rooms.remove(&op.cpu)),
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
            // One page alone: it was order 0 that failed.
            let entry = if order > Order::ZERO {
                self.alloc_folio(cpu, Order::ZERO, op.first + step).ok()
            } else {
                None
            };
            self.set(op.first + step, entry.map_or(NONE, SwapEntry::to_raw));
        }
    }

    fn set(&self, slot: u32, value: u64) {
        self.places[slot as usize].store(value, Release);
    }

    /// What stands for the slot, taken out of [`KEPT`] if it was kept.
    fn take(&self, slot: u32) -> (Option<SwapEntry>, Kept) {
        let place = &self.places[slot as usize];
        loop {
            let value = place.load(Acquire);
            if value & BUSY != 0 {
                std::hint::spin_loop();
                continue;
            }
            if value & KEPT == 0 {
                return (SwapEntry::from_raw(value).filter(|_| value & NONE == 0), Kept::No);
            }
            let entry = value & !KEPT;
            if place.compare_exchange(value, entry, AcqRel, Relaxed).is_ok() {
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
                // More than half is used: nothing is kept.
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

//! The work of every allocator under measurement: it hands slots out and takes them back, counts
//! and swap cache included.

use super::common::*;
use folioswap_slots::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// An allocator of slots.
pub trait Allocator: Sync {
    /// Allocates, charges, and puts the folio into the swap cache. Returns the raw number of the
    /// first slot.
    fn alloc(&self, cpu: u32, order: Order, folio: u32) -> u64;
    /// Frees a folio's slots: the opposite of `alloc`.
    fn free(&self, raw: u64, order: Order, folio: u32);
}

/// The group to charge.
pub struct Group {
    charged: AtomicU64,
    limit: u64,
}

impl Hooks for &Group {
    fn charge(&self, outcome: Result<SwapEntry, AllocError>, slots: u32) -> Result<(), ChargeRefused> {
        if outcome.is_err() {
            return Ok(());
        }
        // One group per CPU, as for tasks in groups of their own.
        let before = self.charged.load(Ordering::Relaxed);
        self.charged.store(before + u64::from(slots), Ordering::Relaxed);
        if before + u64::from(slots) > self.limit { Err(ChargeRefused) } else { Ok(()) }
    }
}

#[repr(align(128))]
struct OwnLine(Group);

/// The engine with a policy.
pub struct Engine<P: Policy> {
    bench: Bench<P>,
    groups: Vec<OwnLine>,
}

impl<P: Policy> Engine<P> {
    pub fn new(cpus: u32) -> Self {
        let config = Config { cpus, clusters_max: 4096, frame_chunks_max: 64 };
        let bench = engine_with(config, 1024);
        bench.swapon(DeviceSpec::new(1000 * 512)).unwrap();
        let group = || OwnLine(Group { charged: AtomicU64::new(0), limit: u64::MAX });
        Engine { bench, groups: (0..cpus).map(|_| group()).collect() }
    }
}

impl<P: Policy> Allocator for Engine<P> {
    #[inline]
    fn alloc(&self, cpu: u32, order: Order, folio: u32) -> u64 {
        let group = &self.groups[cpu as usize].0;
        let slots = &self.bench.slots;
        slots
            .alloc_folio_with(LogicalCpu(cpu), order, FolioId(folio), DeviceMask::ALL, &group)
            .unwrap()
            .to_raw()
    }

    #[inline]
    fn free(&self, raw: u64, order: Order, folio: u32) {
        let entry = SwapEntry::from_raw(raw).unwrap();
        let freed = self.bench.slots.free_folio(entry, order.slots(), FolioId(folio), |_, _| {}).unwrap();
        assert_eq!(freed, order.slots());
    }
}

/// Folios that a task swaps out in a burst, and frees in a burst when it ends.
const TASK: usize = 512;

/// The order in which folios go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Short tasks one after the other: each allocates in a burst, and then the longest-lived one
    /// frees all its slots in a burst.
    Tasks,
    /// After each allocation the oldest folio goes.
    Oldest,
    /// After each allocation a random folio goes: clusters get full of holes.
    Random,
}

/// The slots of one thread, through the logical CPUs that it plays in turn, a task on each. On
/// cache lines of its own.
#[repr(align(128))]
pub struct Thread {
    pattern: Pattern,
    order: Order,
    /// Raw entry and the CPU it was allocated on.
    ring: Vec<(u64, u32)>,
    next: usize,
    random: u64,
    cpus: Vec<u32>,
    turn: usize,
}

impl Thread {
    /// A thread that holds `length` folios (a power of two, at least one task) throughout.
    pub fn new(
        allocator: &impl Allocator,
        pattern: Pattern,
        order: Order,
        length: usize,
        cpus: Vec<u32>,
    ) -> Thread {
        let random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(cpus[0]);
        let mut thread = Thread { pattern, order, ring: Vec::new(), next: 0, random, cpus, turn: 0 };
        for index in 0..length {
            let cpu = thread.cpu_of(index);
            thread.ring.push((allocator.alloc(cpu, order, cpu), cpu));
        }
        thread
    }

    /// The CPU for the next folio; it changes with each task.
    #[inline]
    fn cpu_of(&mut self, index: usize) -> u32 {
        if index.is_multiple_of(TASK) {
            self.turn = if self.turn + 1 < self.cpus.len() { self.turn + 1 } else { 0 };
        }
        self.cpus[self.turn]
    }

    /// Runs `pairs` allocations (a multiple of a task's) and as many frees.
    pub fn run(&mut self, allocator: &impl Allocator, pairs: usize) {
        match self.pattern {
            Pattern::Tasks => (0..pairs / TASK).for_each(|_| self.task(allocator)),
            Pattern::Oldest | Pattern::Random => (0..pairs).for_each(|_| self.pair(allocator)),
        }
    }

    fn task(&mut self, allocator: &impl Allocator) {
        let cpu = self.cpu_of(0);
        let mut new = [(0, cpu); TASK];
        for folio in &mut new {
            folio.0 = allocator.alloc(cpu, self.order, cpu);
        }
        for (old, new) in self.ring[self.next..self.next + TASK].iter_mut().zip(new) {
            let (raw, folio) = core::mem::replace(old, new);
            allocator.free(raw, self.order, folio);
        }
        self.next = (self.next + TASK) & (self.ring.len() - 1);
    }

    #[inline]
    fn pair(&mut self, allocator: &impl Allocator) {
        let index = match self.pattern {
            Pattern::Random => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random as usize & (self.ring.len() - 1)
            }
            Pattern::Tasks | Pattern::Oldest => self.next,
        };
        let cpu = self.cpu_of(self.next);
        self.next = (self.next + 1) & (self.ring.len() - 1);
        let raw = allocator.alloc(cpu, self.order, cpu);
        let (raw, folio) = core::mem::replace(&mut self.ring[index], (raw, cpu));
        allocator.free(raw, self.order, folio);
    }
}

/// Folios of `order` that a thread holds: 4096 slots, but at least one task.
pub fn held(order: Order) -> usize {
    (4096 / order.slots() as usize).max(TASK)
}

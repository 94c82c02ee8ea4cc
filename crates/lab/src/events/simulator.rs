//! Clocks, lock queues and coroutines.
//!
//! Time is counted in picoseconds, because some steps cost less than a nanosecond.

use super::costs::Costs;
use super::figures::{LockWaits, Simulation, Times};
use super::locks::{Lock, Locks, NOBODY, Named};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use folioswap_slots::{LockName, Relax, Step};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const PS_PER_NS: f64 = 1000.0;
/// Stack of a coroutine: the allocator's deepest path takes a few KiB.
const STACK_BYTES: usize = 256 << 10;

/// Why a coroutine gave the processor up.
enum Suspend {
    /// Another CPU's clock is lower.
    Behind,
    /// It waits for a lock or for another CPU's operation, and is woken.
    Blocked,
}

/// Kinds of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// In the program: no system time.
    User,
    /// On pages: compression, mapping. System time outside the allocator.
    Pages,
    /// In the allocator.
    Allocator,
}

#[derive(Clone, Copy)]
struct Cpu {
    clock: u64,
    /// When it began to wait for a lock or for another operation.
    blocked_since: u64,
    yielder: *const Yielder<(), Suspend>,
}

/// Costs in picoseconds.
#[derive(Clone, Copy)]
struct StepCosts {
    lock: u64,
    transfer: u64,
    list: u64,
    look: u64,
    take: u64,
    alloc: u64,
    free: u64,
    free_slot: u64,
    table: u64,
    relax: u64,
}

/// CPUs that were handed a lock go before others at the same time, so that nobody overtakes them.
const HANDED: u8 = 0;
const OTHERS: u8 = 1;

type Turn = Reverse<(u64, u8, u64, u32)>;

struct World {
    costs: StepCosts,
    current: u32,
    cpus: Vec<Cpu>,
    turns: BinaryHeap<Turn>,
    sequence: u64,
    locks: Locks,
    times: Times,
    spent_ps: [u64; 5],
}

impl World {
    fn me(&mut self) -> &mut Cpu {
        &mut self.cpus[self.current as usize]
    }

    fn push(&mut self, class: u8, cpu: u32) {
        self.sequence += 1;
        let time = self.cpus[cpu as usize].clock;
        self.turns.push(Reverse((time, class, self.sequence, cpu)));
    }

    fn charge(&mut self, kind: Spent, ps: u64) {
        self.me().clock += ps;
        self.spent_ps[kind as usize] += ps;
    }

    /// Whether another CPU's turn comes before ours.
    fn is_behind(&mut self) -> bool {
        let clock = self.me().clock;
        self.turns.peek().is_some_and(|Reverse((time, ..))| *time <= clock)
    }

    fn yielder(&mut self) -> *const Yielder<(), Suspend> {
        self.me().yielder
    }
}

const LOCK_WAIT: usize = 3;
const IDLE: usize = 4;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Runs `action` on the simulation of this thread; `None` if there is none, or if no coroutine of
/// it runs.
fn with<T>(action: impl FnOnce(&mut World) -> T) -> Option<T> {
    WORLD.with_borrow_mut(|world| world.as_mut().filter(|world| world.current != NOBODY).map(action))
}

/// Gives the processor up. Context: in a coroutine; the world is not borrowed.
fn suspend(why: Suspend) {
    let Some(yielder) = with(World::yielder) else { return };
    // SAFETY: the pointer is that of the running coroutine's own yielder, which lives on its stack
    // until its function returns; the hooks run inside that function.
    unsafe { (*yielder).suspend(why) };
}

/// Lets CPUs whose clocks are lower go first.
fn in_order() {
    if with(World::is_behind) == Some(true) {
        suspend(Suspend::Behind);
    }
}

/// Charges `ns` nanoseconds to the running CPU.
pub(crate) fn spend(kind: Spent, ns: f64) {
    with(|world| world.charge(kind, (ns * PS_PER_NS) as u64));
}

/// Waits until another CPU calls [`wake`] for this one.
pub(crate) fn block() {
    with(|world| {
        let cpu = world.me();
        cpu.blocked_since = cpu.clock;
    });
    suspend(Suspend::Blocked);
}

/// Lets a CPU that called [`block`] go on from the running CPU's time.
pub(crate) fn wake(cpu: u32) {
    with(|world| {
        let now = world.me().clock;
        let other = &mut world.cpus[cpu as usize];
        let idle = now.saturating_sub(other.blocked_since);
        other.clock += idle;
        world.spent_ps[IDLE] += idle;
        world.push(OTHERS, cpu);
    });
}

/// Waits until the running CPU may take the lock.
fn before_lock(name: Named) {
    with(|world| {
        let cost = world.costs.lock;
        world.charge(Spent::Allocator, cost);
    });
    in_order();
    let queued = with(|world| {
        let me = world.current;
        let lock = world.locks.get(name);
        if lock.owner == NOBODY {
            return false;
        }
        lock.queue.push_back(me);
        lock.queue_max = lock.queue_max.max(lock.queue.len() as u32);
        let cpu = world.me();
        cpu.blocked_since = cpu.clock;
        true
    });
    if queued == Some(true) {
        suspend(Suspend::Blocked);
    }
}

/// The running CPU has the lock.
fn locked(name: Named) {
    with(|world| {
        let me = world.current;
        let now = world.me().clock;
        let lock = world.locks.get(name);
        lock.owner = me;
        lock.since = now;
        lock.acquired += 1;
        let elsewhere = lock.last != me && lock.last != NOBODY;
        let mut cost = if elsewhere { world.costs.transfer } else { 0 };
        if matches!(name, Named::Slots(LockName::Lists { .. } | LockName::Available)) {
            cost += world.costs.list;
        }
        world.charge(Spent::Allocator, cost);
    });
}

/// The running CPU drops the lock.
fn before_unlock(name: Named) {
    in_order();
    with(|world| {
        let now = world.me().clock;
        let lock = world.locks.get(name);
        if lock.owner == NOBODY {
            return;
        }
        lock.held_ps += now - lock.since;
        lock.last = lock.owner;
        lock.owner = NOBODY;
        let Some(next) = lock.queue.pop_front() else { return };
        let cpu = &mut world.cpus[next as usize];
        let waited = now - cpu.blocked_since;
        cpu.clock = now;
        lock.waited += 1;
        lock.wait_ps += waited;
        // Nobody else can take it before: the next holder's turn comes first.
        lock.owner = next;
        world.spent_ps[LOCK_WAIT] += waited;
        world.push(HANDED, next);
    });
}

/// Works for `ns` nanoseconds under the lock within the device `store`.
pub(crate) fn hold_store(store: u32, kind: Spent, ns: f64) {
    before_lock(Named::Store(store));
    locked(Named::Store(store));
    spend(kind, ns);
    before_unlock(Named::Store(store));
}

/// The [`Relax`] of a simulated CPU. Outside of a simulation it does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulated;

impl Relax for Simulated {
    fn relax(_round: u32) {
        with(|world| {
            let cost = world.costs.relax;
            world.charge(Spent::Allocator, cost);
        });
        in_order();
    }

    fn before_lock(name: LockName) {
        before_lock(Named::Slots(name));
    }

    fn before_try(name: LockName) {
        with(|world| {
            let cost = world.costs.lock;
            world.charge(Spent::Allocator, cost);
        });
        in_order();
        with(|world| {
            let lock = world.locks.get(Named::Slots(name));
            lock.refused += u64::from(lock.owner != NOBODY);
        });
    }

    fn locked(name: LockName) {
        locked(Named::Slots(name));
    }

    fn before_unlock(name: LockName) {
        before_unlock(Named::Slots(name));
    }

    fn step(step: Step) {
        with(|world| {
            let costs = &world.costs;
            let cost = match step {
                Step::Look(_) => costs.look,
                Step::Take(slots) => costs.take * u64::from(slots),
                Step::Free(slots) => costs.free + costs.free_slot * u64::from(slots),
                Step::Allocate => costs.alloc,
                Step::Table => costs.table,
            };
            world.charge(Spent::Allocator, cost);
        });
    }
}

/// Every CPU waits for another one, which is a mistake of the simulation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} simulated CPUs wait for each other; please report this")]
pub struct Deadlock(pub u32);

/// Ends the simulation of this thread on drop.
struct Clear;

impl Drop for Clear {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

/// Runs `work` for each of `cpus` logical CPUs, as coroutines, until all have returned.
///
/// # Errors
/// [`Deadlock`].
pub(crate) fn simulate<'a>(
    costs: &Costs,
    cpus: u32,
    work: impl Fn(u32) + Copy + 'a,
) -> Result<Simulation, Deadlock> {
    let ps = |ns: f64| (ns * PS_PER_NS) as u64;
    let idle = Cpu { clock: 0, blocked_since: 0, yielder: std::ptr::null() };
    let world = World {
        costs: StepCosts {
            lock: ps(costs.lock_ns),
            transfer: ps(costs.transfer_ns),
            list: ps(costs.list_ns),
            look: ps(costs.look_ns),
            take: ps(costs.take_slot_ns),
            alloc: ps(costs.alloc_ns),
            free: ps(costs.free_ns),
            free_slot: ps(costs.free_slot_ns),
            table: ps(costs.table_ns),
            relax: ps(costs.transfer_ns),
        },
        current: NOBODY,
        cpus: vec![idle; cpus as usize],
        turns: BinaryHeap::new(),
        sequence: 0,
        locks: Locks::default(),
        times: Times::default(),
        spent_ps: [0; 5],
    };
    WORLD.set(Some(world));
    let mut coroutines: Vec<Coroutine<(), Suspend, ()>> = (0..cpus)
        .map(|cpu| {
            let stack = DefaultStack::new(STACK_BYTES).expect("address space for a stack");
            // SAFETY: the coroutines are dropped at the end of this function, before 'a ends.
            unsafe {
                Coroutine::with_stack_unchecked(stack, move |yielder: &Yielder<(), Suspend>, ()| {
                    with(|world| world.me().yielder = yielder);
                    work(cpu);
                })
            }
        })
        .collect();
    // Dropped first: while a panic unwinds the coroutines, the hooks do nothing.
    let _clear = Clear;
    let mut left = cpus;
    WORLD.with_borrow_mut(|world| {
        let world = world.as_mut().expect("set above");
        (0..cpus).for_each(|cpu| world.push(OTHERS, cpu));
    });
    loop {
        let next = WORLD.with_borrow_mut(|world| {
            let world = world.as_mut().expect("set above");
            let Reverse((.., cpu)) = world.turns.pop()?;
            world.current = cpu;
            Some(cpu)
        });
        let Some(cpu) = next else { break };
        match coroutines[cpu as usize].resume(()) {
            CoroutineResult::Yield(Suspend::Behind) => {
                with(|world| world.push(OTHERS, cpu));
            }
            CoroutineResult::Yield(Suspend::Blocked) => {}
            CoroutineResult::Return(()) => left -= 1,
        }
    }
    if left > 0 {
        // Their stacks hold locks and references; they are left as they are.
        coroutines.into_iter().for_each(std::mem::forget);
        return Err(Deadlock(left));
    }
    let world = WORLD.take().expect("set above");
    Ok(world.finish())
}

impl World {
    fn finish(mut self) -> Simulation {
        let seconds = |ps: u64| ps as f64 / 1e12;
        let [user, pages, allocator, lock_wait, idle] = self.spent_ps.map(seconds);
        let elapsed = seconds(self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or(0));
        self.times = Times { user, pages, allocator, lock_wait, idle, elapsed };
        let named = |name: String, lock: &Lock| LockWaits {
            name,
            acquired: lock.acquired,
            waited: lock.waited,
            refused: lock.refused,
            wait_s: seconds(lock.wait_ps),
            held_s: seconds(lock.held_ps),
            queue_max: lock.queue_max,
        };
        let mut locks = vec![named("available list".to_owned(), &self.locks.available)];
        for (device, lock) in self.locks.lists.iter().enumerate() {
            locks.push(named(format!("lists of device {device}"), lock));
        }
        for (device, lock) in self.locks.stores.iter().enumerate() {
            locks.push(named(format!("inside device {device}"), lock));
        }
        let mut clusters: Vec<LockWaits> = Vec::new();
        let mut all = LockWaits { name: "all clusters".to_owned(), ..LockWaits::default() };
        for (device, of_device) in self.locks.clusters.iter().enumerate() {
            for (index, lock) in of_device.iter().enumerate() {
                all.acquired += lock.acquired;
                all.waited += lock.waited;
                all.refused += lock.refused;
                all.wait_s += seconds(lock.wait_ps);
                all.held_s += seconds(lock.held_ps);
                all.queue_max = all.queue_max.max(lock.queue_max);
                if lock.waited > 0 {
                    clusters.push(named(format!("cluster {index} of device {device}"), lock));
                }
            }
        }
        let by_wait = |a: &LockWaits, b: &LockWaits| b.wait_s.total_cmp(&a.wait_s);
        clusters.sort_by(by_wait);
        clusters.truncate(10);
        locks.push(all);
        locks.extend(clusters);
        locks.sort_by(by_wait);
        Simulation { times: self.times, locks }
    }
}

#[cfg(test)]
mod tests;

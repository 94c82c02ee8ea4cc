//! Replays a prepared trace in simulated time: each logical CPU carries out what it did in the
//! recording, in its order, at its own clock.
//!
//! Between two requests a CPU spends the recorded time in its program, and on each page what
//! [`Costs`] says. An operation on slots waits until the earlier operations on the same recorded
//! cluster are done, as in [`super::run`]; that time is idle, not system time.

use super::devices::Device;
use super::prepare::{Op, OpKind, Prepared};
use super::replayed::ReplayError;
use super::run::Replayer;
use crate::allocator::{Allocator, CLUSTER};
use crate::events::{self, Costs, Deadlock, Simulation, Spent};
use crate::policies::{PolicyName, WithPolicy};
use folioswap_slots::{DeviceId, LogicalCpu, Node, NodePreference, ORDERS, Policy};
use folioswap_trace::Cause;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// The nodes of a machine.
#[derive(Debug, Clone, Default)]
pub struct OnNodes {
    /// Number of nodes; logical CPU n is on node n modulo this. 0: all on node 0.
    pub nodes: u32,
    /// The node of each device; missing ones have none.
    pub of_devices: Vec<u32>,
}

/// The replay to simulate.
#[derive(Debug, Clone)]
pub struct SimulatedReplay {
    /// The policy.
    pub policy: PolicyName,
    /// Devices, at least one.
    pub devices: Vec<Device>,
    /// The nodes.
    pub nodes: OnNodes,
    /// What locks and steps cost.
    pub costs: Costs,
    /// Factor on the recorded time between requests; 0: every CPU always has a request.
    pub program_time: f64,
    /// Share of a page's cost during which a lock within its device is held, 0 to 1.
    pub device_lock: f64,
}

/// The figures of a simulated replay.
#[derive(Debug, Clone, Serialize)]
pub struct SimulatedReplayed {
    /// The policy.
    pub policy: PolicyName,
    /// Logical CPUs.
    pub cpus: u32,
    /// Times and locks.
    pub simulation: Simulation,
    /// Allocations that succeeded, per order.
    pub allocated: [u64; ORDERS],
    /// Allocations that failed, per order.
    pub fallback: [u64; ORDERS],
    /// Clusters isolated and scanned, per order.
    pub clusters_scanned: [u64; ORDERS],
    /// Size of each device, and its use at the end, pages.
    pub devices: Vec<(u64, u64)>,
}

/// Why there was no simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The replay itself failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The simulation is wrong.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
}

/// Simulates the replay of a trace that [`Prepared::timed`] prepared. The same trace, options and
/// costs give the same figures on every host.
///
/// Cost: about half a microsecond per lock acquisition of the replay.
///
/// # Errors
/// [`SimulateError`].
pub fn simulate(prepared: &Prepared, options: &SimulatedReplay) -> Result<SimulatedReplayed, SimulateError> {
    options.policy.apply_simulated(Task { prepared, options })
}

struct Task<'a> {
    prepared: &'a Prepared,
    options: &'a SimulatedReplay,
}

impl WithPolicy for Task<'_> {
    type Output = Result<SimulatedReplayed, SimulateError>;

    fn run<P: Policy>(self) -> Self::Output {
        let Task { prepared, options } = self;
        let cpus = prepared.cpus.max(1);
        if options.devices.is_empty() {
            return Err(ReplayError::NoDevice.into());
        }
        let pages = (prepared.slots_peak * 5 / 4 + 1).next_multiple_of(CLUSTER) + u64::from(cpus) * CLUSTER;
        let clusters: u64 =
            options.devices.iter().map(|device| device.pages.unwrap_or(pages).div_ceil(CLUSTER)).sum();
        let clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
        let allocator: Allocator<P> = Allocator::new(cpus, clusters).map_err(ReplayError::from)?;
        let slots = allocator.slots();
        if P::NODE_PREFERENCE == NodePreference::On && options.nodes.nodes > 0 {
            for cpu in 0..cpus {
                if let Some(node) = Node::new(cpu % options.nodes.nodes) {
                    slots.set_node(LogicalCpu(cpu), node);
                }
            }
        }
        let mut ids = Vec::new();
        for (index, device) in options.devices.iter().enumerate() {
            let node = options.nodes.of_devices.get(index).and_then(|node| Node::new(*node));
            let spec = folioswap_slots::DeviceSpec { node, ..device.spec(pages) };
            let on = slots.swapon(spec);
            ids.push(on.map_err(|source| ReplayError::Swapon { number: index + 1, source })?);
        }
        let replayer = Replayer::new(slots, &ids, &options.devices, pages, prepared);
        let mut of_cpu: Vec<Vec<u32>> = vec![Vec::new(); cpus as usize];
        for (index, op) in prepared.ops.iter().enumerate() {
            of_cpu[(u32::from(op.cpu) % cpus) as usize].push(index as u32);
        }
        let run = Run { prepared, options, replayer: &replayer, waiting: RefCell::default() };
        let simulation = events::simulate(&options.costs, cpus, |cpu| run.work(cpu, &of_cpu[cpu as usize]))?;
        slots.validate().map_err(ReplayError::Inconsistent)?;
        let stats = slots.stats();
        let info = |id| slots.device_info(id).map_or((0, 0), |info| (info.pages, info.inuse));
        Ok(SimulatedReplayed {
            policy: options.policy,
            cpus,
            simulation,
            allocated: stats.allocated,
            fallback: stats.fallback,
            clusters_scanned: stats.clusters_scanned,
            devices: ids.into_iter().map(info).collect(),
        })
    }
}

struct Run<'a, 'b, P: Policy> {
    prepared: &'a Prepared,
    options: &'a SimulatedReplay,
    replayer: &'a Replayer<'b, P>,
    /// CPUs that wait for the operation of a recorded cluster that has this number.
    waiting: RefCell<HashMap<(u32, u32), u32>>,
}

impl<P: Policy> Run<'_, '_, P> {
    fn work(&self, cpu: u32, ops: &[u32]) {
        let mut surplus = HashMap::new();
        let mut before = None;
        for &index in ops {
            let op = &self.prepared.ops[index as usize];
            let tick = self.prepared.ticks.get(index as usize).copied().unwrap_or(0);
            let ticks = tick.saturating_sub(before.replace(tick).unwrap_or(tick));
            let program = ticks as f64 * f64::from(self.prepared.tick_ns) * self.options.program_time;
            events::spend(Spent::User, program);
            let cluster = op.first / CLUSTER as u32;
            let ordered = op.kind != OpKind::Fallback;
            while ordered && self.replayer.next[cluster as usize].load(Relaxed) != op.sequence {
                self.waiting.borrow_mut().insert((cluster, op.sequence), cpu);
                events::block();
            }
            // The slots of a free have no entry afterwards.
            let device_before = self.replayer.device_of(op);
            self.replayer.apply(LogicalCpu(cpu), op, &mut surplus);
            let device = self.replayer.device_of(op).or(device_before);
            if ordered {
                self.replayer.next[cluster as usize].store(op.sequence + 1, Relaxed);
                let woken = self.waiting.borrow_mut().remove(&(cluster, op.sequence + 1));
                if let Some(other) = woken {
                    events::wake(other);
                }
            }
            self.spend_on_pages(op, device);
        }
        self.replayer.give_back(surplus);
    }

    /// Time on the pages of an operation, a part of it under the device's own lock.
    fn spend_on_pages(&self, op: &Op, device: Option<DeviceId>) {
        let costs = &self.options.costs;
        let each_ns = match (op.kind, op.cause) {
            (OpKind::Alloc | OpKind::Reuse, _) => costs.page_out_ns,
            (OpKind::Free | OpKind::Retain, Cause::SwapIn) => costs.page_in_ns,
            _ => return,
        };
        let locked = self.options.device_lock;
        let Some(device) = device.filter(|_| locked > 0.0) else {
            return events::spend(Spent::Pages, f64::from(op.slots) * each_ns);
        };
        for _ in 0..op.slots {
            events::spend(Spent::Pages, each_ns * (1.0 - locked));
            events::hold_store(device.index() as u32, Spent::Pages, each_ns * locked);
        }
    }
}

#[cfg(test)]
mod tests;

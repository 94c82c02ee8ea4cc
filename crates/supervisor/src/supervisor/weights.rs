//! Weights of processes: who gives how much where the group is at its limit and all are busy
//! (`folioswap_policy::reclaim::shares`).
//!
//! A weight is that of a process, whatever it executes, and of those that it starts from then on.

use super::Supervisor;
use crate::processes::proc;
use folioswap_group::protocol::ChangeEnd;
use std::collections::HashMap;

/// The weights that are not the default, by process id.
#[derive(Default)]
pub(super) struct Weights(HashMap<u32, u32>);

impl Weights {
    /// The weight of a process that becomes a member: its own, or that of its parent; 0 for the
    /// default.
    pub(super) fn of_new(&mut self, pid: u32) -> u32 {
        if self.0.is_empty() {
            return 0;
        }
        self.0.retain(|&other, _| proc::state_and_parent(other).is_some());
        let parent = proc::state_and_parent(pid).map_or(0, |(_, parent)| parent);
        let weight = self.0.get(&pid).or_else(|| self.0.get(&parent)).copied().unwrap_or(0);
        if weight > 0 {
            self.0.insert(pid, weight);
        }
        weight
    }
}

impl Supervisor {
    /// Gives a process another weight.
    pub(super) fn set_weight(&mut self, process: u32, weight: u32) -> ChangeEnd {
        let group = self.settings.memory.group();
        let seats = group.decisions.seats_in_use().iter().enumerate();
        let ids: Vec<u32> = seats
            .filter(|(_, seat)| seat.is_live() && seat.pid() == process)
            .map(|(id, _)| id as u32)
            .collect();
        if ids.is_empty() {
            return ChangeEnd::NoMember { process };
        }
        ids.into_iter().for_each(|id| self.settings.memory.writer().set_weight(id, weight));
        self.weights.0.insert(process, weight);
        ChangeEnd::Done { charge: group.certain_charge_bytes() }
    }
}

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
    /// Whether all processes have the default.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Supervisor {
    /// The weight of a process that becomes a member: its own, which an exec keeps, or that of
    /// whoever forked it or started it; 0 for the default. `forked_by` is known of a forked child.
    pub(super) fn weight_of_new(&mut self, pid: u32, forked_by: Option<u32>) -> u32 {
        if self.weights.0.is_empty() {
            return 0;
        }
        let parent = || proc::state_and_parent(pid).map_or(0, |(_, parent)| parent);
        let parent = forked_by.unwrap_or_else(parent);
        let weights = &mut self.weights.0;
        let weight = weights.get(&pid).or_else(|| weights.get(&parent)).copied().unwrap_or(0);
        if weight > 0 {
            weights.insert(pid, weight);
        }
        weight
    }

    /// Forgets the weights of processes that are no members any more, and have announced no child
    /// that is still to come.
    pub(super) fn forget_weights(&mut self) {
        let (connections, pending) = (&self.connections, &self.pending);
        self.weights.0.retain(|&pid, _| {
            connections.iter().any(|connection| connection.pid == pid)
                || pending.iter().any(|fork| fork.parent == pid)
                || proc::state_and_parent(pid).is_some()
        });
    }

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

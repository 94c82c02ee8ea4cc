//! One available list per node, on which the node's own device of default priority comes first
//! (before spec §4, patch 1).

use crate::available::AvailableList;
use crate::entry::{DeviceId, LogicalCpu};
use crate::policy::{NodePreference, Policy};
use crate::slots::Slots;
use crate::sync::Ordering;

/// Largest number of nodes of a machine.
pub const NODES_MAX: usize = 16;

/// Number of a NUMA node, 0 to 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u8);

impl Node {
    /// The node `index`; `None` from 16 upwards.
    pub const fn new(index: u32) -> Option<Node> {
        if index < NODES_MAX as u32 { Some(Node(index as u8)) } else { None }
    }

    /// As an array index, 0 to 15.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    fn all() -> impl Iterator<Item = Node> {
        (0..NODES_MAX as u8).map(Node)
    }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Assigns a logical CPU to a node; all are on node 0 at first. No effect without
    /// [`NodePreference::On`].
    pub fn set_node(&self, cpu: LogicalCpu, node: Node) {
        if P::NODE_PREFERENCE == NodePreference::Off {
            return;
        }
        self.variant_cpu(cpu).node.store(u32::from(node.0), Ordering::Relaxed);
    }

    /// The list that `cpu` walks, with its node.
    pub(crate) fn node_list(&self, cpu: LogicalCpu) -> (&AvailableList, Node) {
        let node = Node(self.variant_cpu(cpu).node.load(Ordering::Relaxed) as u8);
        (&self.variant_shared().node_lists[node.index()], node)
    }

    /// Sort key of a device on a node's list, higher first. On its own node a device of default
    /// priority comes before every other of default priority.
    pub(crate) fn node_key(&self, node: Node, id: DeviceId) -> i32 {
        let device = self.device(id);
        let priority = device.priority();
        if priority < 0 && device.node() == Some(node) { -1 } else { priority }
    }

    /// Context: available-list lock held.
    pub(crate) fn insert_on_nodes(&self, id: DeviceId) {
        for (node, list) in Node::all().zip(&self.variant_shared().node_lists) {
            list.insert(id, |id| self.node_key(node, id));
        }
    }

    /// Context: available-list lock held.
    pub(crate) fn remove_from_nodes(&self, id: DeviceId) {
        self.variant_shared().node_lists.iter().for_each(|list| list.remove(id));
    }

    /// The first device that is on the global list or on a node's, but not on all, or not in its
    /// place.
    pub(crate) fn misplaced_on_nodes(&self, all: &AvailableList) -> Option<DeviceId> {
        Node::all().zip(&self.variant_shared().node_lists).find_map(|(node, list)| {
            let listed = (0..list.length()).filter_map(|position| list.get(position));
            let unknown = listed.clone().find(|id| all.position(*id).is_none());
            let missing = (0..all.length())
                .filter_map(|position| all.get(position))
                .find(|id| list.position(*id).is_none());
            let unsorted = listed
                .clone()
                .zip(listed.skip(1))
                .find(|(before, after)| self.node_key(node, *before) < self.node_key(node, *after))
                .map(|(_, after)| after);
            unknown.or(missing).or(unsorted)
        })
    }
}

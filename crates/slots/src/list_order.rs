//! A list order of one's own: which lists an allocation searches, one after the other, once the
//! CPU's own cluster is consumed ([`Policy::list_order`](crate::Policy::list_order)).

use crate::order::Order;

/// A step of the search through one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// One free cluster.
    Free,
    /// NONFULL clusters of the order, up to all of them. Nothing for order 9.
    Nonfull,
    /// One FRAG cluster of the order.
    OneFragment,
    /// All FRAG clusters of the order.
    AllFragments,
    /// A full cluster gives the slots back that are only cached, if more than half of all slots are
    /// used. Finds no slot by itself.
    ReclaimFull,
}

/// Steps, from first to last. A failed search of an order-0 allocation steals from larger orders
/// afterwards, whatever the steps are.
pub type Searches = [Option<Search>; 6];

/// What a list order may go by. The numbers are read without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceView {
    /// Order of the allocation.
    pub order: Order,
    /// Whether the device discards clusters that become free.
    pub discards: bool,
    /// Clusters of the device.
    pub clusters: u32,
    /// Clusters that are free or were never used. Some with bad slots may be among the latter.
    pub free: u32,
    /// NONFULL clusters of the order.
    pub nonfull: u32,
    /// FRAG clusters of the order.
    pub fragments: u32,
    /// Logical CPUs of the allocator.
    pub cpus: u32,
}

/// Where the order of lists comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListOrder {
    /// From the policy's constants.
    ByConstants,
    /// From [`Policy::list_order`](crate::Policy::list_order).
    Own,
}

//! Locks and steps as an observer sees them: what a simulation of many CPUs hooks into.
//!
//! The allocator tells its [`Relax`](crate::Relax) type when it is about to take or to drop a lock,
//! and which steps it does in between. The default methods do nothing and are folded away.

/// A lock that several logical CPUs take. Local locks are not among them: while a CPU allocates,
/// only that CPU takes its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockName {
    /// The lock of a cluster.
    Cluster {
        /// Number of the device.
        device: u32,
        /// Index of the cluster in its device.
        index: u32,
    },
    /// The lock of a device's cluster lists.
    Lists {
        /// Number of the device.
        device: u32,
    },
    /// The lock of the available list.
    Available,
}

/// A piece of work with a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A range of a cluster was looked at, so many slots of it: one if its first slot is in use,
    /// else all.
    Look(u32),
    /// An allocation began.
    Allocate,
    /// So many slots were taken.
    Take(u32),
    /// So many slots of one cluster were freed.
    Free(u32),
    /// A cluster got a table.
    Table,
}

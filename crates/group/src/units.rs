//! The units in which swap space is shared between processes: a page, and a cluster of pages.

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;
/// Pages of a cluster, the unit in which the supervisor grants slots of a shared device.
pub const CLUSTER_PAGES: u64 = 512;
/// Bytes of a cluster: 2 MiB.
pub const CLUSTER_BYTES: u64 = CLUSTER_PAGES * PAGE_SIZE as u64;

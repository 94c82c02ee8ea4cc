//! The experiments: each runs the policies from before and after a series of patches, and makes a
//! [`Report`](folioswap_report::Report).

pub mod cluster_scan;
pub mod contention;
pub mod on_trace;
pub mod round_robin;
pub mod shmem_swapin;
pub mod slot_cache;
pub mod thp_swapout;
pub mod tiers;

/// Threads of an experiment with real threads: one for each processor, at most 32.
fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32).min(32)
}

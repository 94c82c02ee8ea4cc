//! The experiments: each runs the policies from before and after a series, and makes a [`Report`](crate::report::Report) of it.

pub mod cluster_scan;
pub mod on_trace;
pub mod round_robin;
pub mod slot_cache;
pub mod thp_swapout;

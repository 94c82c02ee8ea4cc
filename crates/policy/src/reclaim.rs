//! Reclaim: when memory is taken, from whom, which pages, and when nothing is left to take.

pub mod aging;
pub mod division;
pub mod handover;
pub mod inactive;
pub mod shares;
pub mod standstill;
pub mod store_share;
pub mod watermarks;
pub mod workingset;

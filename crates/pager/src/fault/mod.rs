//! The handler thread: reads the userfaultfd and serves faults.

pub mod ahead;
pub mod bring;
pub mod buffers;
pub mod claim;
pub mod clean;
pub mod copy_back;
pub mod direct_reclaim;
pub mod first_touch;
pub mod frozen;
pub mod hand_over;
pub mod handler;
pub mod huge_page;
pub mod memory_wait;
pub mod queue;
pub mod raw_children;
pub mod read_around;
pub mod readahead;
pub mod reading;
pub mod reads;
pub mod serve;
pub mod sharing;
pub mod swap_in;
pub mod wait;
pub mod workingset;

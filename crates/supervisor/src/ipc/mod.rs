//! Communication between processes: control messages, packets of the front, shared memory, and
//! questions about a group.

pub mod description;
pub mod group_memory;
pub mod groups;
pub mod link;
pub mod mapped;
pub mod wire;

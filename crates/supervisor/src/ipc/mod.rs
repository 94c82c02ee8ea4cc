//! What processes exchange: control messages, the front's packets, shared memory, and questions about a group.

pub mod groups;
pub mod link;
pub mod mapped;
pub mod wire;

//! The engine inside a program that asked for it, by the library: the embedder names the memory
//! that is managed, starts the threads and ends them.
//!
//! | file | concept |
//! |---|---|
//! | `embedding` | making, starting, stopping and dismantling such an engine |
//! | `managed` | the embedder's commands: ranges managed, kept and released; resident pages |
//! | `duplicate` | copy-on-write duplicates of managed ranges |
//! | `signals` | faults that come as signals, served in the thread that faults |

pub mod duplicate;
pub mod embedding;
pub mod managed;
pub mod signals;

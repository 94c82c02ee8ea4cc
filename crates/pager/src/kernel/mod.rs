//! What Linux offers, thin: userfaultfd, pagemap, mappings, futexes, threads, `/proc`. Knows nothing of the engine.

pub mod futex;
pub mod latency;
pub mod maps;
pub mod pagemap;
pub mod proc;
pub mod ranges;
pub mod sys;
pub mod thread;
pub mod ticks;
pub mod uffd;

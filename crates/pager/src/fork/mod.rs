//! Fork: the child reads the right contents from its first instruction on.
//!
//! This room holds the steps; their state is in `engine/fork_state`. A fork by the C library
//! freezes the engine until the child is on its own (`protocol`, `freeze`). A bare clone(2) runs
//! none of our code, so the parent serves its child for good (`raw_child`). Where the system-call
//! gate makes the forks, both are the same, and the kernel reports neither (`gated`).
//!
//! | file | concept |
//! |---|---|
//! | `protocol` | the forking thread's part: before the fork, and after it in both processes |
//! | `freeze` | the handler's part: serving parent and child while no page word changes |
//! | `gated` | what a child does that gets no userfaultfd from the kernel, and its parent |
//! | `headroom` | waiting for the memory that a child's engine takes |
//! | `raw_child` | children made by a bare clone(2), served by their parent |

pub mod freeze;
pub mod gated;
pub mod headroom;
pub mod protocol;
pub mod raw_child;

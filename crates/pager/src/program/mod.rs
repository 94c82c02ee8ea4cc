//! The program's part: the mappings that it changes and the advice that it gives. The handler
//! applies the kernel's events; threads of the program call the rest, by the agent or the library.
//!
//! | file | concept |
//! |---|---|
//! | `events` | removals, unmappings and moves of mappings, applied to page words and ranges |
//! | `announce` | memory that comes in faster than the evictor could follow |
//! | `advice` | MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED |
//! | `huge_advice` | MADV_HUGEPAGE, MADV_NOHUGEPAGE |
//! | `locking` | mlockall |
//! | `remapping` | mremap of several mappings |
//! | `own_userfault` | memory that the program serves by a userfaultfd of its own |

pub mod advice;
pub mod announce;
pub mod events;
pub mod huge_advice;
pub mod locking;
pub mod own_userfault;
pub mod remapping;

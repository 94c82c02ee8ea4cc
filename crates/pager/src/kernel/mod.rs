//! A thin layer over Linux: each file wraps one interface of the kernel. Nothing here knows the
//! engine, allocates, or uses the C library.
//!
//! | file | concept |
//! |---|---|
//! | `sys` | system calls that `rustix` does not offer; clocks, CPUs, priority |
//! | `uffd` | the userfaultfd: its ioctls and its messages |
//! | `pagemap` | pages that are present, protected or exclusive (PAGEMAP_SCAN, pagemap words) |
//! | `maps` | the list of mappings, and which of them can be managed |
//! | `proc` | small files of `/proc`: sizes, faults, CPUs |
//! | `rights` | the capabilities of a pager thread, which it gives up |
//! | `failing` | calls that fail at random, for tests |
//! | `filter`, `landlock` | the system calls of a pager thread, and the files that it may open |
//! | `futex` | a lock and wake-up words |
//! | `processor` | what depends on the processor: system calls, new threads, thread pointers |
//! | `process` | processes: the calling one, and the one whose memory it shares |
//! | `thread` | threads and processes made by clone(2), without the C library |
//! | `ticks` | the timer that wakes the handler |
//! | `image` | the object that this code is a part of |
//! | `window` | the addresses of the engine's own mappings |
//! | `ranges` | a sorted set of address ranges |
//! | `latency` | a histogram of durations |

pub mod failing;
pub mod filter;
pub mod futex;
pub mod image;
pub mod landlock;
pub mod latency;
pub mod maps;
pub mod pagemap;
pub mod proc;
pub mod process;
pub mod processor;
pub mod ranges;
pub mod rights;
pub mod sys;
pub mod thread;
pub mod ticks;
pub mod uffd;
pub mod window;

//! The handler thread: it reads the userfaultfd and serves faults.
//!
//! | file | concept |
//! |---|---|
//! | `handler` | the thread and its rounds; its parts are the next six |
//! | `queue` | faults that were read and are not served yet |
//! | `unmapped` | the ranges that were unmapped last, on which no fault is served |
//! | `wait` | how it sleeps: messages, reads, ticks |
//! | `reads`, `reading` | reads from files that go on while other faults are served |
//! | `raw_children` | children by a bare clone(2) that it serves |
//! | `ahead` | a walk gets its next blocks ahead of its faults |
//! | `serve` | one fault, by the word of its page |
//! | `first_touch` | memory that was never touched |
//! | `swap_in` | in which size a page comes back |
//! | `bring`, `claim`, `copy_back` | a piece is claimed, read, copied in |
//! | `huge_page` | huge pages that come as one |
//! | `readahead`, `read_around` | how much comes along; what is read ahead from slow devices |
//! | `clean`, `sharing` | writes to clean copies, and to memory that relatives share |
//! | `memory_wait`, `direct_reclaim`, `hand_over` | a fault waits for memory |
//! | `workingset` | the heat of a page that comes back |
//! | `buffers`, `frozen` | buffers; whose fault is served in a fork's freeze |

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
pub mod unmapped;
pub mod wait;
pub mod workingset;

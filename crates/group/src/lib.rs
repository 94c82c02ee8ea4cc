//! The state that the members of a memory group and their supervisor share, and nothing else.
//!
//! A *group* is one `folioswap run`: a supervisor and the processes (members) that live within one
//! limit. Engines are private to their process
//! (`docs/decisions/0021-one-engine-per-process.md`). Between processes there are only
//!
//! * the **decisions** ([`decisions::Decisions`]): a memfd of fixed layout, atomics only, that the
//!   supervisor alone can write. They have the limit, the table of **devices** ([`devices`]), which
//!   tells a member where its clusters lie, the **folio sizes** that members may use
//!   ([`folio_orders`]), the **seats** of the members ([`seat`]), and the **nested groups**
//!   ([`nested`]), which only an embedder makes;
//! * the **segment** ([`segment::Segment`]): a second one that every member can write, created and
//!   sized by the supervisor. A member writes only its own [`segment::Member`] there: its
//!   **counters** ([`counters`]), the **course** of its run ([`moments`], [`refaults`]) and its
//!   discount for shared pages ([`sharing`]);
//! * both together ([`group::Group`]): what the group takes, and its limits;
//! * the **control protocol** ([`protocol`]): fixed-size messages over one `SOCK_SEQPACKET`
//!   connection per member. The end of that connection *is* the death (or the exec) of the member:
//!   the kernel closes it whatever killed the process;
//! * the **links** to network devices ([`swap_link`]);
//! * the **letter** to the agent in a program into which the supervisor has put it ([`letter`]).
//!
//! [`units`] has the sizes of a page and of a cluster; [`sums`] adds up figures of members.
//!
//! The supervisor alone, which is single-threaded, keeps the ownership of the clusters of shared
//! devices. A member that is killed at any step leaves nothing half done, because none of its steps
//! changes shared state.
#![no_std]

pub mod counters;
pub mod decisions;
pub mod devices;
pub mod folio_orders;
pub mod group;
pub mod letter;
pub mod moments;
pub mod nested;
pub mod protocol;
pub mod refaults;
pub mod seat;
pub mod segment;
pub mod sharing;
pub mod sums;
pub mod swap_link;
pub mod units;

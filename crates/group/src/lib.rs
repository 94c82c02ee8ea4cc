//! The state that the members of a memory group and their supervisor share, and nothing else.
//!
//! A *group* is one `folioswap run`: a supervisor and the processes (members) that live within one
//! limit. Engines are private to their process
//! (`docs/decisions/0021-one-engine-per-process.md`). Between processes there are only
//!
//! * the **segment** ([`segment::Segment`]): a memfd of fixed layout, atomics only, no locks,
//!   created and sized by the supervisor. A member writes only its own [`segment::Member`]; every
//!   member may read all of it.
//! * the **nested groups** in it ([`nested`]), which only an embedder makes;
//! * the **folio sizes** that its members may use ([`folio_orders`]);
//! * the **counters** of each member ([`counters`]) and its discount for shared pages
//!   ([`sharing`]);
//! * the table of **devices** in it ([`devices`]), which tells a member where its clusters lie;
//! * the **control protocol** ([`protocol`]): fixed-size messages over one `SOCK_SEQPACKET`
//!   connection per member. The end of that connection *is* the death (or the exec) of the member:
//!   the kernel closes it whatever killed the process;
//! * the **links** to network devices ([`swap_link`]).
//!
//! [`units`] has the sizes of a page and of a cluster; [`sums`] adds up figures of members.
//!
//! The supervisor alone, which is single-threaded, keeps the ownership of the clusters of shared
//! devices. A member that is killed at any step leaves nothing half done, because none of its steps
//! changes shared state.
#![no_std]

pub mod counters;
pub mod devices;
pub mod folio_orders;
pub mod nested;
pub mod protocol;
pub mod segment;
pub mod sharing;
pub mod sums;
pub mod swap_link;
pub mod units;

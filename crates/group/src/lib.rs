//! What the members of a memory group and their supervisor share, and nothing else.
//!
//! A *group* is one `folioswap run`: a supervisor and the processes (members) that live within one limit. Engines are
//! private to their process (`docs/design.md` 3.15); between processes there are only
//!
//! * the **segment** ([`segment::Segment`]): a memfd of fixed layout, atomics only, no locks, created and sized by the
//!   supervisor. A member writes only its own [`segment::Member`]; everybody may read all of it.
//! * the **groups within it** ([`nested`]), which only an embedder makes;
//! * which **folio sizes** its members may make ([`folio_orders`]);
//! * the table of **devices** in it ([`devices`]), by which a member knows where its clusters lie;
//! * the **control protocol** ([`protocol`]): fixed-size messages over one `SOCK_SEQPACKET` connection per member. The
//!   end of that connection *is* the death (or the exec) of the member: the kernel closes it whatever killed the process.
//!
//! Ownership of the clusters of a shared device is kept by the supervisor alone, which is single-threaded: a member that
//! is killed at any step leaves nothing half done, since no step of it changes shared state.
#![no_std]

pub mod counters;
pub mod devices;
pub mod folio_orders;
pub mod nested;
pub mod protocol;
pub mod segment;
pub mod sharing;
pub mod swap_link;

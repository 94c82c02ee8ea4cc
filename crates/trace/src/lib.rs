//! Traces of swap slots: the requests of a program to the allocator, one record of 16 bytes per
//! allocation and free.
//!
//! A trace file is a [`Header`] of 64 bytes and any number of [`Record`]s. The crate allocates
//! nothing and makes no system calls: a recorder fills an [`Encoder`] over a buffer of its own and
//! writes the buffer out when it is full; a reader decodes records from bytes of any origin. A
//! recorded process pushes its records into a [`Ring`] that it shares with the process that writes
//! the file. Bytes that no writer makes are refused, never guessed at.
//!
//! | To find | look in |
//! |---|---|
//! | the layout of a file's first bytes | `header.rs` |
//! | the events, and their layout in 16 bytes | `record.rs` |
//! | what version 2 adds to a record: group, mask, folio, cause | `details.rs` |
//! | packing records into a buffer | `encoder.rs` |
//! | the ring between a recorded process and the writer of the file | `ring.rs` |
//!
//! ```
//! use folioswap_trace::*;
//! let header = Header { tick_ns: 1000, cpus: 4 };
//! let alloc = Record { tick: 7, event: Event::Alloc { cpu: 3, order: 4, entry: 16 } };
//! let mut buffer = [0; 64];
//! let mut encoder = Encoder::new(&mut buffer);
//! assert_eq!(encoder.push(&alloc), Ok(()));
//! let bytes = encoder.finish();
//! assert_eq!(Header::decode(&header.encode()), Ok(header));
//! assert_eq!(Record::decode(bytes.try_into().unwrap()), Ok(alloc));
//! ```
#![no_std]

mod details;
mod encoder;
mod header;
mod record;
mod ring;

pub use details::{BadDetails, Cause, DETAILS_BYTES, Details};
pub use encoder::{Encoder, PushError};
pub use header::{HEADER_BYTES, Header, HeaderError, Layout, VERSION, VERSION_DETAILED};
pub use record::{CPUS_MAX, Event, RECORD_BYTES, Record, RecordError, SLOTS_MAX, TICK_MAX};
pub use ring::{Moment, RING_RECORDS, Ring, Taken, Tracer};

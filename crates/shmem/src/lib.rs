//! Shmem objects: contents by index, in folios of every order that swap as folios, within a memory
//! limit (spec §5, §2.7, §6).
//!
//! A [`ShmemSpace`] belongs to one mount: folio memory, swap space (compressed RAM, and a file
//! behind it) and reclaim. A [`ShmemObject`] is one file's content. Many threads may use all of it
//! at once.
//!
//! ```
//! use folioswap_shmem::{HugePolicy, Options, ShmemObject, ShmemSpace};
//! let space = ShmemSpace::new(Options::within(16 << 20))?;
//! let object = ShmemObject::new(&space, HugePolicy::Always);
//! object.write(1 << 20, b"content")?;
//! let mut bytes = [1; 8];
//! assert_eq!(object.read((1 << 20) - 1, &mut bytes)?, 8);
//! assert_eq!(&bytes, b"\0content");
//! assert_eq!(object.pages(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Module | Concept |
//! |---|---|
//! | `map`, `word` | index -> folio or swap entry of any order |
//! | `folio` | the state of a folio, and its lock |
//! | `frames` | the memory of folios |
//! | `lru` | the order in which folios leave |
//! | `space` | the limit, and all else that objects share |
//! | `swap`, `devices` | the swap space, and its devices |
//! | `swapin`, `read_in` | a page comes back |
//! | `swapout`, `swap_list` | a folio leaves |
//! | `swapoff` | a device is taken out of use |
//! | `reclaim` | when folios leave, and the thread that makes them |
//! | [`variant`], [`before`] | swap-in as it was before each patch |
//! | `object` | one object: read, write, allocate, truncate, seek |

pub mod before;
mod counters;
mod devices;
mod error;
mod folio;
mod frames;
#[cfg(test)]
mod lower_limit;
mod lru;
mod map;
mod mapping;
mod object;
mod options;
mod outside;
#[cfg(test)]
mod races;
mod read_in;
mod reclaim;
mod space;
mod swap;
mod swap_list;
mod swapin;
mod swapoff;
mod swapout;
mod sync;
pub mod variant;
mod word;

pub use counters::Counts;
pub use devices::{CLUSTER_BYTES, DeviceFigures, DeviceIo, DeviceKind, Discard, SwapDevice};
pub use error::{CreateError, LimitError, SetTiersError, ShmemError};
pub use folioswap_devices::Orders;
pub use object::{Allocation, Lent, ObjectOf, ShmemObject};
pub use options::{HugeAdvice, HugePolicy, Options};
pub use space::{ShmemSpace, Statistics};
pub use swapoff::{SwapoffError, SwapoffReport};

//! folioswap for C. Each function checks its arguments, calls the Rust crate, and turns errors and
//! panics into codes. No panic unwinds into C.
#![warn(missing_docs)]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod border;
mod code;
mod group;
mod region;
mod shmem;
mod statistics;
mod swap;
mod transfer;

pub use border::folioswap_last_error;
pub use code::FolioswapCode;
pub use group::*;
pub use region::*;
pub use shmem::*;
pub use statistics::*;
pub use swap::*;
pub use transfer::*;

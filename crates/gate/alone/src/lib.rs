//! The gate as a shared object of its own, for its tests: preloaded, it arms itself.
//!
//! `FOLIOSWAP_GATE` has options, separated by commas: `off`, `no-dispatch`, `no-rewriting`,
//! `at-once` (a site is rewritten at its first trap), `print` (figures at the end).
//!
//! All of this holds with `panic = "abort"` (the profile `agent`). In others the crate is compiled
//! with `std`, for the lints alone.
#![cfg_attr(all(panic = "abort", target_arch = "x86_64"), no_std)]

#[cfg(all(target_arch = "x86_64", panic = "abort"))]
mod bytes;
#[cfg(target_arch = "x86_64")]
mod start;

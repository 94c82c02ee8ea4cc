//! The lab: experiments with the slot allocator that stand beside the published ones, and traces of allocations.
//!
//! Everything drives the real allocator ([`folioswap_slots`]). What is modelled is the program above it: [`build`] is a compilation of
//! many short tasks under a memory limit, [`swapout`] is tasks that write memory once, folio by folio. [`experiments`] are run by
//! `folioswap lab`.

pub mod build;
pub mod experiments;
pub mod fit;
pub mod generate;
pub mod memory;
pub mod parallel;
pub mod peer;
pub mod policies;
pub mod ram_device;
pub mod replay;
pub mod swapout;
pub mod traces;

//! Shared by tests and benches: page contents, memory, and the contract by which both devices are
//! driven.
#![allow(dead_code)]

pub mod data;
pub mod device;
pub mod loop_device;
pub mod memory;

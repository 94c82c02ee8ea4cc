//! What the tests and benches share: page contents, memory, and the contract both devices are driven by.
#![allow(dead_code)]

pub mod data;
pub mod device;
pub mod loop_device;
pub mod memory;

//! Support for the tests of this workspace. No crate ships it.
//!
//! | Module | Contents |
//! |---|---|
//! | [`schedule`] | stand-ins for `std::sync` that yield to shuttle at each operation |
//! | [`memory`] | zeroed, page-aligned memory |
//! | [`random`] | seeded numbers and incompressible bytes |
//! | [`skipping`] | tests that cannot run here, counted |
//! | [`environment`] | numbers from environment variables, which select the long form of a test |
//!
//! The crate knows no other crate of the workspace, so that every one of them can use it.

pub mod environment;
pub mod memory;
pub mod random;
pub mod schedule;
pub mod skipping;

//! Random messages, descriptors and connections against the supervisor that runs in production.
//!
//! An input is a string of bytes that is taken as [`steps`]: processes connect, speak, pass
//! descriptors, write to the segment, and leave. After each input everybody leaves, and the
//! [`world`] asserts what must hold: each request was answered or its connection closed, a member
//! that behaves is served, the books agree, and nothing is left. [`campaign`] makes the inputs and
//! keeps those that fail.
//!
//! The supervisor kills processes, so it works in a process of its own, whose only descendants are
//! [`puppets`] that were made for it: their process ids are the only ones that the supervisor
//! knows, and the only ones that it would end.

mod bytes;
mod campaign;
mod heap;
mod journal;
mod pool;
mod puppets;
mod steps;
mod world;

/// Kept inputs, then random ones: 5 s of them, or as many as `FOLIOSWAP_FUZZ_SECONDS` says.
#[test]
fn no_message_harms_the_supervisor() {
    campaign::run();
}

/// The process in which the inputs are tried; in an ordinary test run it does nothing.
#[test]
fn trial() {
    campaign::try_inputs();
}

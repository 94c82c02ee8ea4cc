//! The engine inside a program that asked for it.

pub mod duplicate;
pub mod embedding;
pub mod managed;
pub mod signals;

//! The reasons why the store does not take a page, or does not give it back.

use crate::checksum::Checksum;
use core::fmt;

/// The reason why a page could not be stored. The store is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreError {
    /// The system gave no memory.
    NoMemory,
    /// The page would take more than [`StoreOptions::mem_limit`](super::StoreOptions::mem_limit).
    LimitReached,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "the compressed store got no memory from the system",
            Self::LimitReached => "the compressed store has reached its memory limit",
        })
    }
}

impl core::error::Error for StoreError {}

/// The reason why a page could not be loaded. The output page holds arbitrary bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadError {
    /// The handle names no object of that length: the caller's table or the object's header was
    /// overwritten.
    NotAnObject,
    /// The stored bytes have changed.
    Corrupt {
        /// The checksum that the caller kept.
        expected: Checksum,
        /// The checksum of the bytes now.
        found: Checksum,
    },
    /// The checksum is right, but the bytes are no page: the caller's length and checksum belong to
    /// another object.
    Malformed,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("no such object in the compressed store"),
            Self::Corrupt { expected, found } => {
                write!(f, "stored bytes are corrupt: checksum {found}, expected {expected}")
            }
            Self::Malformed => f.write_str("stored bytes do not expand to a page"),
        }
    }
}

impl core::error::Error for LoadError {}

/// The reason why an object could not be freed. Nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeError {
    /// The handle names no object: it was freed before, or never stored.
    NotAnObject,
    /// The object's header was overwritten, or it has another length.
    HeaderDamaged,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnObject => "freeing what is no object of the compressed store",
            Self::HeaderDamaged => "freeing an object whose header was overwritten",
        })
    }
}

impl core::error::Error for FreeError {}

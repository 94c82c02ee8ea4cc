//! What is wrong with a value of `--swap`, and what to write instead.

use super::PRIORITY_MAX;
use crate::size::SizeError;
use folioswap_nbd::uri::UriError;

/// What is wrong with a value of `--swap`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SwapOptionError {
    /// No such type.
    #[error(
        "unknown device type '{0}'; there are zram, ram, file and nbd, e.g. zram,prio=1 or ram,size=1G or file:/var/tmp,size=16G or nbd://HOST/EXPORT"
    )]
    UnknownType(String),
    /// It needs a target.
    #[error("a file needs a directory to lie in, or a prepared file or block device, e.g. file:/var/tmp")]
    NoTarget,
    /// It takes no target.
    #[error("{kind} takes no target: write {kind} instead of {kind}:...")]
    Target {
        /// The type.
        kind: &'static str,
    },
    /// No such key for this type.
    #[error("{kind} does not know '{key}'; it knows {known}")]
    UnknownKey {
        /// The type.
        kind: &'static str,
        /// As given.
        key: String,
        /// What it knows.
        known: &'static str,
    },
    /// A key without its value.
    #[error("{0} lacks its value: write {0}=...")]
    NoValue(&'static str),
    /// A key given twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A priority that is none.
    #[error("prio={0} is no priority: give a number from 0 to {PRIORITY_MAX} (higher is used first)")]
    Priority(String),
    /// A size that is none.
    #[error("size={text}: {source}")]
    Size {
        /// As given.
        text: String,
        /// What is wrong.
        source: SizeError,
    },
    /// Too small a size.
    #[error("size={0} is too small: a device has at least 2M")]
    TooSmall(String),
    /// RAM without a size.
    #[error("ram needs a size, e.g. ram,size=1G")]
    NoSize,
    /// Neither yes nor no.
    #[error("synchronous={0}: write synchronous=yes or synchronous=no")]
    Synchronous(String),
    /// Neither all nor 0.
    #[error("orders={0}: write orders=all, or orders=0 for single pages only")]
    Orders(String),
    /// No UUID.
    #[error(
        "uuid={0} is no UUID: write it as `folioswap mkswap` printed it, e.g. uuid=01234567-89ab-cdef-0123-456789abcdef"
    )]
    Uuid(String),
    /// Neither yes nor no.
    #[error("encrypt={0}: write encrypt=yes or encrypt=no")]
    Encrypt(String),
    /// A number that is none, or out of bounds.
    #[error("{key}={text}: give a whole number from 1 to {most}")]
    Number {
        /// The key.
        key: &'static str,
        /// As given.
        text: String,
        /// The highest.
        most: u64,
    },
    /// No place of an export.
    #[error("{text}: {source}")]
    Uri {
        /// As given.
        text: String,
        /// What is wrong.
        source: UriError,
    },
    /// No such way to discard.
    #[error("discard={0}: write discard, discard=once or discard=pages")]
    Discard(String),
}

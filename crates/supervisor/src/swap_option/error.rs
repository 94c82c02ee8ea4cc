//! Why a value of `--swap` was not understood. Each message says what to write instead.

use super::PRIORITY_MAX;
use crate::{size::SizeError, suggestion};
use folioswap_nbd::uri::UriError;

/// Why a value of `--swap` was not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SwapOptionError {
    /// There is no such type of device.
    #[error(
        "unknown device type '{0}'{meant}; there are zram, ram, file and nbd, e.g. zram,prio=1 or ram,size=1G or file:/var/tmp,size=16G or nbd://HOST/EXPORT",
        meant = suggestion::did_you_mean(.0, &["zram", "ram", "file", "nbd", "nbds"])
    )]
    UnknownType(String),
    /// A file lacks its target.
    #[error("a file needs a directory to lie in, or a prepared file or block device, e.g. file:/var/tmp")]
    NoTarget,
    /// The type takes no target.
    #[error("{kind} takes no target: write {kind} instead of {kind}:...")]
    Target {
        /// The type.
        kind: &'static str,
    },
    /// The type has no such key.
    #[error("{kind} does not know '{key}'{meant}; it knows {known}", meant = suggestion::did_you_mean(key, &words(known)))]
    UnknownKey {
        /// The type.
        kind: &'static str,
        /// The key as given.
        key: String,
        /// The keys of the type.
        known: &'static str,
    },
    /// A key lacks its value.
    #[error("{0} lacks its value: write {0}=...")]
    NoValue(&'static str),
    /// A key is given twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// The value of `prio` is no priority.
    #[error("prio={0} is no priority: give a number from 0 to {PRIORITY_MAX} (higher is used first)")]
    Priority(String),
    /// The value of `size` is no size.
    #[error("size={text}: {source}")]
    Size {
        /// The value as given.
        text: String,
        /// The reason.
        source: SizeError,
    },
    /// The size is less than one cluster.
    #[error("size={0} is too small: a device has at least 2M")]
    TooSmall(String),
    /// A `ram` device lacks its size.
    #[error("ram needs a size, e.g. ram,size=1G")]
    NoSize,
    /// The value of `synchronous` is neither yes nor no.
    #[error("synchronous={0}: write synchronous=yes or synchronous=no")]
    Synchronous(String),
    /// The value of `orders` is neither all nor 0.
    #[error("orders={0}: write orders=all, or orders=0 for single pages only")]
    Orders(String),
    /// The value of `uuid` is no UUID.
    #[error(
        "uuid={0} is no UUID: write it as `folioswap mkswap` printed it, e.g. uuid=01234567-89ab-cdef-0123-456789abcdef"
    )]
    Uuid(String),
    /// The value of `encrypt` is neither yes nor no.
    #[error("encrypt={0}: write encrypt=yes or encrypt=no")]
    Encrypt(String),
    /// The value of a key is no number, or out of bounds.
    #[error("{key}={text}: give a whole number from 1 to {most}")]
    Number {
        /// The key.
        key: &'static str,
        /// The value as given.
        text: String,
        /// The highest number allowed.
        most: u64,
    },
    /// The URI of an export cannot be read.
    #[error("{text}: {source}")]
    Uri {
        /// The URI as given.
        text: String,
        /// The reason.
        source: UriError,
    },
    /// The value of `discard` is neither once nor pages.
    #[error("discard={0}: write discard, discard=once or discard=pages")]
    Discard(String),
}

/// The words of a list that is written for people.
fn words(list: &str) -> Vec<&str> {
    list.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and").collect()
}

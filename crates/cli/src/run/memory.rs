//! The value of `--memory`: a size, or a part of what there is.

use crate::{cgroup, host};
use folioswap_supervisor::size::{self, SizeError};

/// A limit as the user asks for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryArgument {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of the cgroup's limit, or of the machine's RAM.
    Percent(f64),
}

/// What a percentage is of: the cgroup's limit, else the machine's RAM, in bytes.
pub fn whole() -> u64 {
    cgroup::memory_limit().map_or_else(host::memory_bytes, |limit| limit.bytes)
}

/// So many percent of an amount, in bytes.
pub fn part(whole: u64, percent: f64) -> u64 {
    (whole as f64 * percent / 100.0) as u64
}

impl MemoryArgument {
    /// The amount in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            MemoryArgument::Bytes(bytes) => bytes,
            MemoryArgument::Percent(percent) => part(whole(), percent),
        }
    }
}

/// Why a value of `--memory` was not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MemoryError {
    /// The size is none.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The percentage is none.
    #[error("not a percentage; write a number above 0 and up to 100, e.g. 50% or 12.5%")]
    Percent,
}

/// Reads a value of `--memory`.
///
/// # Errors
/// [`MemoryError`], whose message says what to write instead.
pub fn parse(text: &str) -> Result<MemoryArgument, MemoryError> {
    let Some(number) = text.trim().strip_suffix('%') else {
        return Ok(MemoryArgument::Bytes(size::parse_limit(text)?));
    };
    let percent: f64 = number.trim_end().parse().map_err(|_| MemoryError::Percent)?;
    if percent > 0.0 && percent <= 100.0 {
        Ok(MemoryArgument::Percent(percent))
    } else {
        Err(MemoryError::Percent)
    }
}

#[cfg(test)]
mod tests;

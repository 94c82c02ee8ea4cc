//! Sizes as people write and read them. All units are binary: `512M` is 512 MiB.

use bytesize::ByteSize;

/// The smallest limit, in bytes: below it not even a C program with our pager fits.
pub const LIMIT_MIN: u64 = 8 << 20;

/// Why a size was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SizeError {
    /// The text is not a size.
    #[error("not a size; write bytes or a number with a unit, e.g. 512M, 1.5G or 1GiB")]
    Unreadable,
    /// The size needs more than 64 bits.
    #[error("larger than any memory (more than 16 EiB)")]
    Overflow,
    /// The size is below [`LIMIT_MIN`].
    #[error(
        "too small; the least that a program can live in is 8M (did you forget the unit? 512 is 512 bytes)"
    )]
    TooSmall,
}

fn parse(text: &str) -> Result<u64, SizeError> {
    parse_size::Config::new().with_binary().parse_size(text.trim()).map_err(|error| match error {
        parse_size::Error::PosOverflow => SizeError::Overflow,
        _ => SizeError::Unreadable,
    })
}

/// Reads a value of `--memory`, in bytes.
///
/// # Errors
/// The text is no size, needs more than 64 bits, or is below [`LIMIT_MIN`].
pub fn parse_limit(text: &str) -> Result<u64, SizeError> {
    let bytes = parse(text)?;
    if bytes < LIMIT_MIN { Err(SizeError::TooSmall) } else { Ok(bytes) }
}

/// Reads a value of `--swap-max`, in bytes; 0 means no file.
///
/// # Errors
/// The text is no size, or needs more than 64 bits.
pub fn parse_swap_max(text: &str) -> Result<u64, SizeError> {
    parse(text)
}

/// A size for people: `512.0 MiB`.
pub fn show(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { ByteSize(bytes).display().iec().to_string() }
}

/// A size for a column of a table: `40.0M`, `1.2G`, `0`.
pub fn short(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes == 0 {
        return "0".to_owned();
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be shown as 1024.0 is 1.0 of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1}{}", UNITS[unit])
}

/// A size that `--memory` accepts and where something that cannot be swapped out and has `bytes` by
/// now finds room: an eighth and 8 MiB above them, since it was stopped while it grew: `70M`.
pub fn suggest(bytes: u64) -> String {
    format!("{}M", (bytes + bytes / 8 + (8 << 20)).div_ceil(1 << 20))
}

/// A size that is only roughly known, as `--memory` takes it: rounded up to two digits, `140M`.
pub fn about(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    let (unit, letter) = if bytes >= 10 * GIB { (GIB, 'G') } else { (1 << 20, 'M') };
    let count = bytes.div_ceil(unit);
    let digit = 10_u64.pow(count.checked_ilog10().unwrap_or(0).saturating_sub(1));
    format!("{}{letter}", count.div_ceil(digit) * digit)
}

#[cfg(test)]
mod tests;

//! Sizes as people write and read them. All units are binary: `512M` is 512 MiB.

use bytesize::ByteSize;

/// The smallest limit: below it not even a C program with our pager fits.
pub const LIMIT_MIN: u64 = 8 << 20;

/// Why a size was not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SizeError {
    /// Not a size.
    #[error("not a size; write bytes or a number with a unit, e.g. 512M, 1.5G or 1GiB")]
    Unreadable,
    /// More than 64 bits.
    #[error("larger than any memory (more than 16 EiB)")]
    Overflow,
    /// Zero or too small.
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

/// A value of `--memory`.
///
/// # Errors
/// Unreadable, too large for 64 bits, or below [`LIMIT_MIN`].
pub fn parse_limit(text: &str) -> Result<u64, SizeError> {
    let bytes = parse(text)?;
    if bytes < LIMIT_MIN { Err(SizeError::TooSmall) } else { Ok(bytes) }
}

/// A value of `--swap-max`; 0 means no file.
///
/// # Errors
/// Unreadable or too large for 64 bits.
pub fn parse_swap_max(text: &str) -> Result<u64, SizeError> {
    parse(text)
}

/// A size for people: `512.0 MiB`.
pub fn show(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { ByteSize(bytes).display().iec().to_string() }
}

/// A size that `--memory` accepts and where something that cannot be swapped out and has `bytes` by now finds room: an eighth and
/// 8 MiB above them, since it was stopped while it grew: `70M`.
pub fn suggest(bytes: u64) -> String {
    format!("{}M", (bytes + bytes / 8 + (8 << 20)).div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_binary() {
        assert_eq!(parse_limit("512M"), Ok(512 << 20));
        assert_eq!(parse_limit("1.5G"), Ok(1536 << 20));
        assert_eq!(parse_limit("1GiB"), Ok(1 << 30));
        assert_eq!(parse_limit("1gb"), Ok(1 << 30));
        assert_eq!(parse_limit("16777216"), Ok(16 << 20));
    }

    #[test]
    fn absurd_limits_are_told_apart() {
        for text in ["", "abc", "12X", "-5M", "M", "1..5G", "nan"] {
            assert_eq!(parse_limit(text), Err(SizeError::Unreadable), "{text:?}");
        }
        for text in ["0", "1", "512", "7M"] {
            assert_eq!(parse_limit(text), Err(SizeError::TooSmall), "{text:?}");
        }
        assert_eq!(parse_limit("99999999999999999999999"), Err(SizeError::Overflow));
        assert_eq!(parse_swap_max("0"), Ok(0));
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(512 << 20), "512.0 MiB");
        assert_eq!(suggest((100 << 20) + 1), "121M");
    }
}

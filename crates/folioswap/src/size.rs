//! Sizes as callers give them: numbers of bytes, or text. All units are binary: `512M` is 512 MiB.

use crate::Error;
use std::time::Duration;

/// A number of bytes, given as an integer or as text like `"512M"`, `"1.5G"` or `"64KiB"`. All
/// units are binary.
///
/// ```
/// use folioswap::IntoBytes;
///
/// assert_eq!("512M".into_bytes()?, 512 << 20);
/// assert_eq!(4096.into_bytes()?, 4096);
/// assert!("much".into_bytes().is_err());
/// # Ok::<(), folioswap::Error>(())
/// ```
pub trait IntoBytes {
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// [`Error::Size`] where the text is no size, or the number is negative or does not fit into 64
    /// bits.
    #[allow(clippy::wrong_self_convention, reason = "cheap values and text are given alike")]
    fn into_bytes(self) -> Result<u64, Error>;
}

macro_rules! integers {
    ($($integer:ty)*) => { $(
        impl IntoBytes for $integer {
            fn into_bytes(self) -> Result<u64, Error> {
                u64::try_from(self).map_err(|_| Error::Size { given: self.to_string() })
            }
        }
    )* };
}
integers! { u64 usize u32 i64 i32 }

impl IntoBytes for &str {
    fn into_bytes(self) -> Result<u64, Error> {
        let sizes = parse_size::Config::new().with_binary();
        sizes.parse_size(self.trim()).map_err(|_| Error::Size { given: self.to_owned() })
    }
}

impl IntoBytes for &String {
    fn into_bytes(self) -> Result<u64, Error> {
        self.as_str().into_bytes()
    }
}

impl IntoBytes for String {
    fn into_bytes(self) -> Result<u64, Error> {
        self.as_str().into_bytes()
    }
}

/// Formats a size for people, in the largest unit that leaves at least one: `64.0 MiB`.
pub(crate) fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    format!("{:.1} {}", bytes as f64 / f64::from(1 << 10).powi(power as i32), UNITS[power as usize - 1])
}

/// Formats a duration for people, with up to three digits: `115 us`, `1.25 ms`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let mut value = duration.as_nanos() as f64;
    let mut unit = "ns";
    for larger in ["us", "ms", "s"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    let digits = match value {
        _ if unit == "ns" || value >= 99.5 => 0,
        _ if value >= 9.95 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests;

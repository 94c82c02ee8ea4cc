//! Sizes as callers give them: numbers of bytes, or words. All units are binary: `512M` is 512 MiB.

use crate::Error;

/// A number of bytes, given as an integer or as text like `"512M"`, `"1.5G"` or `"64KiB"` (all units are binary).
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
    /// The number.
    ///
    /// # Errors
    /// [`Error::Size`]: it cannot be read, is negative, or does not fit into 64 bits.
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

/// A size for people, in the largest unit that leaves at least one: `64.0 MiB`.
pub(crate) fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    format!("{:.1} {}", bytes as f64 / f64::from(1 << 10).powi(power as i32), UNITS[power as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary_and_nonsense_is_refused() {
        for (text, bytes) in [("512M", 512 << 20), ("1.5G", 3 << 29), ("1GiB", 1 << 30), (" 7 ", 7)] {
            assert_eq!(text.into_bytes().ok(), Some(bytes), "{text}");
        }
        for text in ["", "M", "-1", "12X", "99999999999999999999"] {
            assert!(matches!(text.into_bytes(), Err(Error::Size { .. })), "{text}");
        }
        assert!((-1).into_bytes().is_err());
        assert_eq!((64 << 20).into_bytes().ok(), Some(64 << 20));
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in [(17, "17 B"), (4096, "4.0 KiB"), (512 << 20, "512.0 MiB"), (3 << 29, "1.5 GiB")]
        {
            assert_eq!(show(bytes), text);
        }
    }
}

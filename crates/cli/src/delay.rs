//! The seconds between two looks, as options have them.

use std::time::Duration;

/// Reads a number of seconds from 0.1 to `most`.
///
/// # Errors
/// What to write instead.
pub fn parse(text: &str, most: u32) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=f64::from(most)).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("not a number of seconds from 0.1 to {most}, e.g. 0.5 or 2")),
    }
}

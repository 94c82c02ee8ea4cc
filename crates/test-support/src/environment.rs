//! Environment variables that select the long form of a test.

use std::str::FromStr;

/// The number in the environment variable `name`, or `default` if it is not set.
///
/// # Panics
///
/// If the variable is set to anything but a number, because a long run would silently become a
/// short one.
pub fn number<T: FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

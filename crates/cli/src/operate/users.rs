//! Names of users.

use std::fs;

/// The name of a user in `/etc/passwd`, or the number where it has none there.
pub fn name(id: u32) -> String {
    named(&fs::read_to_string("/etc/passwd").unwrap_or_default(), id)
}

fn named(passwd: &str, id: u32) -> String {
    let number = id.to_string();
    let is_its = |line: &&str| line.split(':').nth(2) == Some(&number);
    let name = passwd.lines().find(is_its).and_then(|line| line.split(':').next());
    name.filter(|name| !name.is_empty()).map_or(number.clone(), str::to_owned)
}

#[cfg(test)]
mod tests;

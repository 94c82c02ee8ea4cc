//! The device that a name on a command line means.

use std::path::{Path, PathBuf};

/// The index of the meant device among these names. `given` is one of the names, or a path to one
/// of them, relative or through links.
pub fn find(names: &[PathBuf], given: &Path) -> Option<usize> {
    let absolute = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
    let resolved = given.canonicalize().unwrap_or_else(|_| given.to_owned());
    names.iter().position(|name| [given, &absolute, &resolved].contains(&name.as_path()))
}

/// The names as a list for a message to the user, who has to choose another one.
pub fn list(names: &[PathBuf]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests;

//! Which device is meant by what stands on a command line.

use std::path::{Path, PathBuf};

/// The place of the device that is meant among these names: one of them, or a path to it, relative or through links.
pub fn find(names: &[PathBuf], given: &Path) -> Option<usize> {
    let absolute = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
    let resolved = given.canonicalize().unwrap_or_else(|_| given.to_owned());
    names.iter().position(|name| [given, &absolute, &resolved].contains(&name.as_path()))
}

/// The names in a row, for who has to choose another one.
pub fn list(names: &[PathBuf]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_name_and_by_a_path_to_it() {
        let names = ["zram", "/var/tmp", "nbd0"].map(PathBuf::from);
        let at = |given: &str| find(&names, Path::new(given));
        assert_eq!(
            ["zram", "/var/tmp", "/var/../var/tmp/", "nbd0"].map(at),
            [Some(0), Some(1), Some(1), Some(2)]
        );
        assert_eq!(at("/var"), None);
        assert_eq!((list(&names), list(&[])), ("zram, /var/tmp, nbd0".to_owned(), "none".to_owned()));
    }
}

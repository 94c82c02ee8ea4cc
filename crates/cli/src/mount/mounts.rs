//! What is mounted where.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// Is the topmost mount on this path one of ours? The path is absolute and without links.
pub fn is_ours(path: &Path) -> bool {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    topmost_is_ours(&text, path)
}

fn topmost_is_ours(mountinfo: &[u8], path: &Path) -> bool {
    let mut ours = false;
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let Some(separator) = words.iter().position(|word| *word == b"-") else { continue };
        let (Some(point), Some(kind), Some(source)) =
            (words.get(4), words.get(separator + 1), words.get(separator + 2))
        else {
            continue;
        };
        if unescape(point) == path {
            ours = kind.starts_with(b"fuse") && *source == folioswap_tmpfs::SOURCE.as_bytes();
        }
    }
    ours
}

/// Blanks and the like are three octal digits after a backslash.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, others)) = rest.split_first() {
        let digits = others
            .get(..3)
            .filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) => {
                bytes.push(
                    digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                rest = &others[3..];
            }
            None => {
                bytes.push(first);
                rest = others;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// An absolute path without links, of something that may be the root of a mount whose daemon is gone: it cannot be looked at itself.
///
/// # Errors
/// The directory above cannot be looked at.
pub fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let absolute = std::path::absolute(path)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
                _ => Ok(absolute),
            }
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let text = b"22 1 0:20 / /mnt/a\\040b rw - fuse folioswap rw\n\
            23 1 0:21 / /mnt/c rw shared:1 - fuse.folioswap folioswap rw\n\
            24 23 0:22 / /mnt/c rw - tmpfs folioswap rw\n\
            25 1 0:23 / /mnt/d rw - fuse sshfs rw\n";
        let ours = |path: &str| topmost_is_ours(text, Path::new(path));
        assert!(ours("/mnt/a b"));
        assert!(!ours("/mnt/c"), "something else lies over it");
        assert!(!ours("/mnt/d"));
        assert!(!ours("/mnt"));
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(unescape(br"/a\040\134b\"), Path::new(r"/a \b\"));
        assert_eq!(unescape(br"/\0"), Path::new(r"/\0"));
    }
}

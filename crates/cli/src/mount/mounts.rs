//! What is mounted where.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// A mount of ours, as it stands in the mount table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OurMount {
    /// Major and minor number of its device, which no other file system has at the same time. `None` when they are not told.
    pub number: Option<(u32, u32)>,
}

/// Is the topmost mount on this path one of ours? Which? The path is absolute and without links.
pub fn ours_at(path: &Path) -> Option<OurMount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    topmost(&text, path)
}

fn topmost(mountinfo: &[u8], path: &Path) -> Option<OurMount> {
    let mut found = None;
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let Some(separator) = words.iter().position(|word| *word == b"-") else { continue };
        let (Some(number), Some(point), Some(kind), Some(source)) =
            (words.get(2), words.get(4), words.get(separator + 1), words.get(separator + 2))
        else {
            continue;
        };
        if unescape(point) == path {
            let ours = kind.starts_with(b"fuse") && *source == folioswap_tmpfs::SOURCE.as_bytes();
            found = ours.then(|| OurMount { number: device_number(number) });
        }
    }
    found
}

fn device_number(word: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(word).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
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
            25 1 0:23 / /mnt/d rw - fuse sshfs rw\n\
            26 1 0:24 / /mnt/e rw - fuse folioswap rw\n\
            27 26 0:25 / /mnt/e rw - fuse folioswap rw\n";
        let number = |path: &str| topmost(text, Path::new(path)).map(|ours| ours.number);
        assert_eq!(number("/mnt/a b"), Some(Some((0, 20))));
        assert_eq!(number("/mnt/c"), None, "something else lies over it");
        assert_eq!(number("/mnt/d"), None);
        assert_eq!(number("/mnt/e"), Some(Some((0, 25))), "a newer one of ours lies over it");
        assert_eq!(number("/mnt"), None);
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(unescape(br"/a\040\134b\"), Path::new(r"/a \b\"));
        assert_eq!(unescape(br"/\0"), Path::new(r"/\0"));
    }
}

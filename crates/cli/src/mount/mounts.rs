//! The mount table, as far as it concerns mounts of ours.
//!
//! The crate `procfs` (0.18) is not used here, because it leaves the escapes of mount points as
//! they are, and refuses paths that are not UTF-8.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// A mount of ours in the mount table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OurMount {
    /// Major and minor number of its device, which no other file system has at the same time;
    /// `None` when the table does not tell them.
    pub number: Option<(u32, u32)>,
}

/// A mount of ours, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// The directory that it is mounted on.
    pub directory: PathBuf,
    /// The user who mounted it, by the kernel's word.
    pub owner: u32,
}

/// All mounts of ours, in the order in which they were made.
pub fn ours() -> Vec<MountPoint> {
    listed(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

fn listed(mountinfo: &[u8]) -> Vec<MountPoint> {
    let row = |line: &[u8]| {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let separator = words.iter().position(|word| *word == b"-")?;
        let (point, kind, source) = (words.get(4)?, words.get(separator + 1)?, words.get(separator + 2)?);
        let is_ours = kind.starts_with(b"fuse") && *source == folioswap_tmpfs::SOURCE.as_bytes();
        let mut options = words.get(separator + 3)?.split(|&byte| byte == b',');
        let owner = options.find_map(|option| option.strip_prefix(b"user_id="))?;
        let owner = std::str::from_utf8(owner).ok()?.parse().ok()?;
        is_ours.then(|| MountPoint { directory: unescape(point), owner })
    };
    mountinfo.split(|&byte| byte == b'\n').filter_map(row).collect()
}

/// The topmost mount on this path, if it is one of ours. The path must be absolute and without
/// links.
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

/// Reads a path from a table in which blanks and the like are three octal digits after a backslash.
pub fn unescape(word: &[u8]) -> PathBuf {
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

/// Makes a path absolute and free of links, also when it is the root of a mount whose daemon is
/// gone, which cannot be looked at itself.
///
/// # Errors
/// The path, or in that case the directory above, cannot be looked at.
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
mod tests;

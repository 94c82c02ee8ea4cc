//! The file device's file: unlinked from birth (`O_TMPFILE`), so that no end of ours leaves it behind; `O_DIRECT`, so that
//! what was evicted does not come back as page cache.

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, StatVfs, fstatfs, fstatvfs, open},
    io::Errno,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// File systems whose files live in memory.
const MEMORY_FILE_SYSTEMS: &[(u64, &str)] = &[
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x958458f6, "hugetlbfs"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
];

/// Why there is no swap file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CreateError {
    #[error("--swap-dir {}: {source}; give a directory that you may write to, or --swap-max 0 for compressed memory only", directory.display())]
    Directory { directory: PathBuf, source: io::Error },
    #[error("--swap-dir {}: is {kind}, whose files are in memory themselves; give a directory on a disk with --swap-dir, or --swap-max 0 for compressed memory only", directory.display())]
    InMemory { directory: PathBuf, kind: &'static str },
    #[error("--swap-dir {}: its file system cannot make the swap file (an unlinked file with direct I/O): {source}; give a directory on ext4, xfs or btrfs with --swap-dir, or --swap-max 0", directory.display())]
    Unsupported { directory: PathBuf, source: io::Error },
}

/// Makes the file.
///
/// # Errors
/// The directory is absent, not writable, in memory, or its file system lacks `O_TMPFILE` or `O_DIRECT`.
pub fn create_swap_file(directory: &Path) -> Result<OwnedFd, CreateError> {
    let unusable =
        |source: Errno| CreateError::Directory { directory: directory.to_owned(), source: source.into() };
    let folder = open_directory(directory).map_err(unusable)?;
    let kind = fstatfs(&folder).map_err(unusable)?.f_type as u64;
    if let Some((_, kind)) = MEMORY_FILE_SYSTEMS.iter().find(|(magic, _)| *magic == kind) {
        return Err(CreateError::InMemory { directory: directory.to_owned(), kind });
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL | OFlags::CLOEXEC;
    open(directory, flags, Mode::RUSR | Mode::WUSR).map_err(|source| match source {
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC => unusable(source),
        _ => CreateError::Unsupported { directory: directory.to_owned(), source: source.into() },
    })
}

/// The directory, to be shown: a descriptor that holds its path.
///
/// # Errors
/// Of open(2).
pub fn open_directory(directory: &Path) -> Result<OwnedFd, Errno> {
    open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The default size: half of what is free there.
pub fn default_swap_max(file: &OwnedFd) -> u64 {
    fstatvfs(file).map_or(0, |StatVfs { f_bavail, f_frsize, .. }| f_bavail.saturating_mul(f_frsize) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tmpfs_is_refused_and_names_the_option() {
        let error = create_swap_file(Path::new("/dev/shm")).expect_err("tmpfs");
        assert!(matches!(error, CreateError::InMemory { kind: "tmpfs", .. }), "{error}");
        assert!(error.to_string().contains("--swap-dir"));
    }

    #[test]
    fn a_file_on_disk_is_unlinked() {
        let file = create_swap_file(Path::new("/var/tmp")).expect("a disk");
        assert_eq!(rustix::fs::fstat(&file).expect("open").st_nlink, 0);
        assert!(default_swap_max(&file) > 0);
        assert!(matches!(create_swap_file(Path::new("/no/such")), Err(CreateError::Directory { .. })));
    }
}

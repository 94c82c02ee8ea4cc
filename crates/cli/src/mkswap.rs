//! `folioswap mkswap`: prepares a file or block device. No other command writes a header.

use crate::{cli::MkswapArguments, error::Error};
use folioswap_devices::{
    header::SIZE_MIN,
    prepared::{self, Overwrite, PreparedError},
};
use folioswap_supervisor::size;
use rustix::{
    fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open},
    io::Errno,
};
use std::{
    fs,
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Why nothing was prepared.
#[derive(Debug, thiserror::Error)]
pub enum MkswapError {
    /// The target cannot be prepared.
    #[error("mkswap {}: {source}", path.display())]
    Refused {
        /// The target.
        path: PathBuf,
        /// The reason.
        source: PreparedError,
    },
    /// `--size` is given for a file that exists.
    #[error("mkswap {}: it exists, and --size makes a new file: leave --size away to prepare what is there", .0.display())]
    Exists(PathBuf),
    /// The size is below the smallest possible one.
    #[error("mkswap --size {0}: at least 4M are needed (2 MiB are the header's)")]
    TooSmall(String),
    /// The new file cannot be made.
    #[error("mkswap {}: {doing}: {errno}; free some space, or name another place", path.display())]
    New {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        doing: &'static str,
        /// The reason.
        errno: Errno,
    },
}

/// The command.
///
/// # Errors
/// [`MkswapError`]; a file that this command made is removed again.
pub fn mkswap(arguments: &MkswapArguments) -> Result<i32, Error> {
    let path = &arguments.path;
    if let Some(bytes) = arguments.size {
        make_file(path, bytes)?;
    }
    let overwrite = if arguments.force { Overwrite::Anything } else { Overwrite::Nothing };
    let header = prepared::make(path, overwrite).map_err(|source| {
        if arguments.size.is_some() {
            let _ = fs::remove_file(path);
        }
        MkswapError::Refused { path: path.clone(), source }
    })?;
    let (size, uuid) = (size::show(header.size), header.uuid);
    let text = format!(
        "{}: prepared, {size}, UUID={uuid}; use it with --swap file:{}\n",
        path.display(),
        path.display()
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Output)?;
    if let Ok(found) = fs::metadata(path)
        && found.is_file()
        && found.mode() & 0o077 != 0
    {
        eprintln!(
            "folioswap: mkswap {}: others may read it (mode {:04o}), and programs' memory will lie there: `chmod 0600` is suggested",
            path.display(),
            found.mode() & 0o7777
        );
    }
    Ok(0)
}

fn make_file(path: &Path, bytes: u64) -> Result<(), MkswapError> {
    if bytes < SIZE_MIN {
        return Err(MkswapError::TooSmall(size::show(bytes)));
    }
    let failed = |doing| move |errno| MkswapError::New { path: path.to_owned(), doing, errno };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| match errno {
        Errno::EXIST => MkswapError::Exists(path.to_owned()),
        errno => failed("making the file")(errno),
    })?;
    // All blocks are reserved now, so that a full disk shows here. A file system that cannot
    // reserve them takes them as they are used.
    let sized = match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => ftruncate(&file, bytes),
        other => other,
    };
    sized.map_err(|errno| {
        let _ = fs::remove_file(path);
        failed("giving it its size")(errno)
    })
}

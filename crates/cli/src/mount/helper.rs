//! `mount.folioswap`: this program under the name by which mount(8) calls it for a line of
//! `/etc/fstab`, or for a mount unit of systemd:
//!
//! ```text
//! folioswap  /mnt/build  folioswap  memory=1G,size=8G,huge=always,nofail  0  0
//! ```
//!
//! mount(8) gives `SRC DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]`. Options of ours become
//! arguments of `folioswap mount`, so that both are judged by the same rules. Flags of a mount
//! point (`ro`, `nosuid`, ...) are set once it is there; words for mount(8) and systemd are passed
//! over. With `remount` the limits of a mount that is there are changed.

use super::{MountCommandError, arguments::MountArguments, mounts};
use crate::{
    cli::{Cli, Command},
    error::Error,
    operate::{set, targets},
};
use clap::Parser;
use rustix::{
    fs::{StatVfsMountFlags, statvfs},
    io::Errno,
    mount::{MountFlags, mount_remount},
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The names under which this program is the helper of mount(8).
const NAMES: [&str; 2] = ["mount.folioswap", "mount.fuse.folioswap"];
/// Options that take a value, and the arguments of `folioswap mount` that they become.
const VALUES: [(&str, &str); 9] = [
    ("memory", "--memory"),
    ("size", "--size"),
    ("huge", "--huge"),
    ("swap", "--swap"),
    ("swap_tiers", "--swap-tiers"),
    ("swap_dir", "--swap-dir"),
    ("swap_max", "--swap-max"),
    ("nr_inodes", "--inodes"),
    ("mode", "--mode"),
];
/// Flags of the mount point.
const FLAGS: [(&str, MountFlags); 8] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::empty()),
];
/// Words that say nothing to a file system.
const PASSED_OVER: [&str; 17] = [
    "defaults", "rw", "suid", "dev", "exec", "atime", "diratime", "async", "auto", "noauto", "user", "users",
    "nouser", "owner", "group", "nofail", "_netdev",
];

/// Why mount(8) gets an error.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The arguments are not those of mount(8).
    #[error("mount.folioswap is called by mount(8): mount -t folioswap folioswap DIR -o memory=1G,size=8G")]
    Usage,
    /// An option has no meaning.
    #[error(
        "option {0}: not known; there are memory, size, huge, swap, swap_tiers, swap_dir, swap_max, nr_inodes, mode, direct, remount, and \
         the flags of a mount point (ro, nosuid, nodev, noexec, noatime)"
    )]
    Unknown(String),
    /// An option lacks its value.
    #[error("option {0}: give it a value, e.g. {0}=1G")]
    NoValue(String),
    /// A quote does not end.
    #[error("the options end within a quote: {0}")]
    Quote(String),
    /// An option that holds for the life of a mount.
    #[error(
        "option {0}: it holds as long as the mount; only memory, size, swap_tiers and the flags of a mount point can be remounted"
    )]
    NotRemounted(String),
    /// The flags of the mount point could not be set.
    #[error("setting the flags of {}: {source}", directory.display())]
    Flags {
        /// The mount point.
        directory: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

/// Whether this program was called as the helper of mount(8).
pub fn is_helper(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| NAMES.iter().any(|helper| name == *helper))
}

/// What mount(8) asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    directory: PathBuf,
    /// Arguments of `folioswap mount`.
    arguments: Vec<OsString>,
    flags: MountFlags,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mount,
    /// All is judged, and nothing is mounted.
    Fake,
    Remount,
}

/// Mounts or remounts as mount(8) asks.
///
/// # Errors
/// [`HelperError`], and those of the commands `mount` and `set`.
pub fn mount(words: &[OsString]) -> Result<i32, Error> {
    let asked = read(words)?;
    match asked.kind {
        Kind::Remount => remount(&asked)?,
        Kind::Mount | Kind::Fake => {
            let Some(arguments) = arguments(&asked)? else { return Ok(1) };
            if asked.kind == Kind::Fake {
                super::options(&arguments)?;
                return Ok(0);
            }
            super::mount(&arguments)?;
            if let Err(error) = set_flags(&asked) {
                // Without the flags that were asked for it must not stay.
                let directory = mounts::resolve(&asked.directory).unwrap_or_else(|_| asked.directory.clone());
                super::umount::take_down(&directory, super::umount::InUse::Detached)?;
                return Err(error);
            }
        }
    }
    Ok(0)
}

/// The arguments of `folioswap mount`; `None` when its message has been printed.
fn arguments(asked: &Asked) -> Result<Option<MountArguments>, Error> {
    let words =
        [OsString::from("folioswap"), "mount".into()].into_iter().chain(asked.arguments.iter().cloned());
    match Cli::try_parse_from(words.chain(["--".into(), asked.directory.clone().into()])) {
        Ok(Cli { command: Command::Mount(arguments) }) => Ok(Some(arguments)),
        Ok(_) => Err(HelperError::Usage.into()),
        Err(error) => {
            let _ = error.print();
            Ok(None)
        }
    }
}

fn remount(asked: &Asked) -> Result<(), Error> {
    let mut limits = [("--memory", None), ("--size", None)];
    let mut tiers = None;
    let mut words = asked.arguments.chunks(2);
    for pair in &mut words {
        let [name, value] = pair else { return Err(HelperError::NotRemounted(shown(&pair[0])).into()) };
        if name == "--swap-tiers" {
            tiers = Some(value.to_string_lossy().into_owned());
            continue;
        }
        let Some(limit) = limits.iter_mut().find(|(limit, _)| name == limit) else {
            return Err(HelperError::NotRemounted(shown(name)).into());
        };
        let text = value.to_string_lossy();
        limit.1 = Some(folioswap_supervisor::size::parse_swap_max(&text).map_err(|error| {
            crate::operate::OperateError::Refused {
                target: format!("{} {text}", shown(name)),
                reason: error.to_string(),
            }
        })?);
    }
    let point = targets::mount_at(&asked.directory)?;
    set::set_mount(&point, tiers.as_deref(), limits[0].1, limits[1].1)?;
    set_flags(asked)
}

fn shown(argument: &OsStr) -> String {
    argument.to_string_lossy().trim_start_matches("--").replace('-', "_")
}

/// Sets the flags of the mount point alone, which the file system does not see.
fn set_flags(asked: &Asked) -> Result<(), Error> {
    if asked.flags.is_empty() {
        return Ok(());
    }
    let directory = mounts::resolve(&asked.directory)
        .map_err(|source| MountCommandError::Directory { directory: asked.directory.clone(), source })?;
    let failed = |errno: Errno| HelperError::Flags { directory: directory.clone(), source: errno.into() };
    let present = present_flags(&directory).map_err(failed)?;
    if present.contains(asked.flags) {
        return Ok(());
    }
    // A remount sets all flags: one that is there must not be lost with it.
    mount_remount(&directory, MountFlags::BIND | present | asked.flags, "")
        .map_err(|errno| failed(errno).into())
}

/// The flags that a mount point has, of those that protect whoever uses it.
fn present_flags(directory: &Path) -> Result<MountFlags, Errno> {
    let have = statvfs(directory)?.f_flag;
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
    ];
    Ok(pairs.into_iter().filter(|(has, _)| have.contains(*has)).map(|(_, flag)| flag).collect())
}

fn read(words: &[OsString]) -> Result<Asked, HelperError> {
    let mut asked = Asked {
        directory: PathBuf::new(),
        arguments: Vec::new(),
        flags: MountFlags::empty(),
        kind: Kind::Mount,
    };
    let (mut places, mut is_sloppy, mut options) = (Vec::new(), false, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => options.extend(split(words.next().ok_or(HelperError::Usage)?)?),
            Some("-t" | "-N") => _ = words.next().ok_or(HelperError::Usage)?,
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                for flag in flags[1..].chars() {
                    match flag {
                        's' => is_sloppy = true,
                        'f' => asked.kind = Kind::Fake,
                        'n' | 'v' => {}
                        _ => return Err(HelperError::Usage),
                    }
                }
            }
            _ => places.push(word),
        }
    }
    let [_source, directory] = places.as_slice() else { return Err(HelperError::Usage) };
    asked.directory = PathBuf::from(directory);
    for option in options {
        match asked.take(&option) {
            Err(HelperError::Unknown(_)) if is_sloppy => {}
            result => result?,
        }
    }
    Ok(asked)
}

impl Asked {
    fn take(&mut self, option: &[u8]) -> Result<(), HelperError> {
        let at = option.iter().position(|&byte| byte == b'=');
        let name = String::from_utf8_lossy(&option[..at.unwrap_or(option.len())]).into_owned();
        let value = at.map(|at| OsString::from_vec(option[at + 1..].to_vec()));
        if name == "remount" {
            self.kind = Kind::Remount;
        } else if name == "direct" {
            self.arguments.push("--direct".into());
        } else if let Some((_, argument)) = VALUES.iter().find(|(known, _)| *known == name) {
            let value = value.filter(|value| !value.is_empty()).ok_or(HelperError::NoValue(name))?;
            self.arguments.extend([(*argument).into(), value]);
        } else if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == name) {
            self.flags |= *flag;
        } else if !(name.is_empty()
            || PASSED_OVER.contains(&name.as_str())
            || name.starts_with("x-")
            || name.starts_with("X-")
            || name == "comment")
        {
            return Err(HelperError::Unknown(name));
        }
        Ok(())
    }
}

/// The options between commas. A comma within double quotes, or behind a backslash, belongs to its
/// option: `swap="zram,prio=1"`. The backslash stays where `--swap` reads it again (`\,` in DIR).
fn split(text: &OsStr) -> Result<Vec<Vec<u8>>, HelperError> {
    let (mut options, mut option) = (Vec::new(), Vec::new());
    let (mut is_quoted, mut is_escaped) = (false, false);
    for &byte in text.as_bytes() {
        match byte {
            b',' if !is_quoted && !is_escaped => options.push(std::mem::take(&mut option)),
            b'"' if !is_escaped => is_quoted = !is_quoted,
            _ => option.push(byte),
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    if is_quoted {
        return Err(HelperError::Quote(text.to_string_lossy().into_owned()));
    }
    options.push(option);
    Ok(options)
}

#[cfg(test)]
mod tests;

//! Finds CMD as execvp(3) does and checks, before anything is started, how the agent can get into
//! it.

use super::{
    elf::{self, Image},
    errno,
};
use crate::STATUS_REFUSED;
use rustix::{fs::Access, io::Errno};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// The depth to which interpreters of interpreters are followed, as the kernel does.
const SCRIPTS_MAX: usize = 4;

/// Why a program can never be managed.
#[derive(Debug, thiserror::Error)]
pub enum Unmanageable {
    /// The program is for another machine.
    #[error("{}: is a program for another machine ({machine}); folioswap manages 64-bit x86 programs", path.display())]
    Foreign {
        /// The program.
        path: PathBuf,
        /// A description of its machine.
        machine: String,
    },
    /// The program runs with a privilege, so the dynamic linker ignores preloaded objects.
    #[error("{}: is {privilege}, so the dynamic linker ignores what is preloaded and its memory cannot be managed; run it as that user, or run a copy without that bit", path.display())]
    Privileged {
        /// The program.
        path: PathBuf,
        /// The privilege, as in "is set-user-id".
        privilege: &'static str,
    },
}

/// Why a program cannot be started within a group.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// PATH has no such program.
    #[error("{program}: not found (looked in PATH)")]
    NotFound {
        /// The program, as the user wrote it.
        program: String,
    },
    /// The path of the program does not exist.
    #[error("{program}: {source}")]
    NoSuchProgram {
        /// The program, as the user wrote it.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The program exists but cannot be executed.
    #[error("{program}: cannot be executed: {source}")]
    NotExecutable {
        /// The program, as the user wrote it.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The program cannot be managed.
    #[error(transparent)]
    Unmanageable(#[from] Unmanageable),
}

impl ProgramError {
    /// The exit status for this error, as in env(1).
    pub fn status(&self) -> i32 {
        match self {
            ProgramError::NotFound { .. } | ProgramError::NoSuchProgram { .. } => 127,
            ProgramError::NotExecutable { .. } => 126,
            ProgramError::Unmanageable(_) => STATUS_REFUSED,
        }
    }
}

/// A program that can be started within a group.
#[derive(Debug)]
pub struct Program {
    /// The path that execve(2) gets.
    pub path: PathBuf,
    /// How the agent gets into it.
    pub boarding: Boarding,
}

/// How the agent gets into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boarding {
    /// The dynamic linker of glibc preloads it.
    Preload,
    /// The supervisor puts it there: the program is static, or its dynamic linker is musl's.
    Inject,
}

/// Finds and checks a program.
///
/// # Errors
/// Not found (127), not executable (126), or unmanageable (125).
pub fn find(name: &OsStr) -> Result<Program, ProgramError> {
    let path = resolve(name, env::var_os("PATH"))?;
    let boarding = check(&path, 0)?;
    Ok(Program { path, boarding })
}

fn resolve(name: &OsStr, search: Option<OsString>) -> Result<PathBuf, ProgramError> {
    let shown = || name.to_string_lossy().into_owned();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(Errno::NOENT | Errno::NOTDIR) => {
                Err(ProgramError::NoSuchProgram { program: shown(), source: Errno::NOENT.into() })
            }
            Err(error) => Err(ProgramError::NotExecutable { program: shown(), source: error.into() }),
        };
    }
    let search = search.unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut found_but = None;
    for directory in env::split_paths(&search).filter(|_| !name.is_empty()) {
        // An empty entry of PATH means the current directory.
        let path =
            if directory.as_os_str().is_empty() { Path::new(".").join(name) } else { directory.join(name) };
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => found_but = Some(error),
        }
    }
    Err(match found_but {
        Some(error) => ProgramError::NotExecutable { program: shown(), source: error.into() },
        None => ProgramError::NotFound { program: shown() },
    })
}

fn executable(path: &Path) -> Result<(), Errno> {
    let metadata = std::fs::metadata(path).map_err(errno)?;
    if metadata.is_dir() {
        return Err(Errno::ISDIR);
    }
    rustix::fs::accessat(rustix::fs::CWD, path, Access::EXEC_OK, rustix::fs::AtFlags::EACCESS)
}

fn check(path: &Path, depth: usize) -> Result<Boarding, ProgramError> {
    if let Some(privilege) = std::fs::metadata(path).ok().and_then(|found| privilege(path, &found)) {
        return Err(Unmanageable::Privileged { path: path.to_owned(), privilege }.into());
    }
    // A file that may be executed but not read cannot be inspected; it is started and counted like
    // any other.
    let Ok(file) = File::open(path) else { return Ok(Boarding::Preload) };
    let not_executable = |source| ProgramError::NotExecutable { program: path.display().to_string(), source };
    match elf::inspect(&file).map_err(not_executable)? {
        Image::Dynamic { interpreter } if is_musls(&interpreter) => Ok(Boarding::Inject),
        Image::Dynamic { .. } | Image::Other => Ok(Boarding::Preload),
        // The dynamic linker itself, started by hand, preloads the agent as well.
        Image::Static if path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux")) => {
            Ok(Boarding::Preload)
        }
        Image::Static => Ok(Boarding::Inject),
        Image::Foreign { machine } => Err(Unmanageable::Foreign { path: path.to_owned(), machine }.into()),
        Image::Script { interpreter } => match executable(Path::new(&interpreter)) {
            Err(error) => {
                Err(not_executable(io::Error::other(format!("its interpreter {interpreter}: {error}"))))
            }
            Ok(()) if depth < SCRIPTS_MAX => check(Path::new(&interpreter), depth + 1),
            Ok(()) => Err(not_executable(Errno::LOOP.into())),
        },
    }
}

/// Whether this is the dynamic linker of musl.
pub fn is_musls(interpreter: &str) -> bool {
    interpreter.contains("musl")
}

/// The privilege that executing this file would give; any of them makes the dynamic linker ignore
/// LD_PRELOAD.
pub fn privilege(path: &Path, metadata: &Metadata) -> Option<&'static str> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user {
        return Some("set-user-id");
    }
    let group_executable = metadata.mode() & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
    if group_executable && metadata.gid() != group {
        return Some("set-group-id");
    }
    let mut none = [0_u8; 0];
    if user != 0
        && rustix::fs::getxattr(path, "security.capability", &mut none).is_ok_and(|length| length > 0)
    {
        return Some("given capabilities (setcap)");
    }
    None
}

#[cfg(test)]
mod tests;

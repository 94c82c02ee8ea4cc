//! The files of `/proc` of a process that may not open its own any more.

use super::peer;
use folioswap_group::protocol::ProcFile;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};
use std::fs;

/// Opens the files of [`ProcFile::ALL`] of the process with this number and this pidfd, with no
/// more rights than the process itself began with: the kernel shows physical addresses in a pagemap
/// to whoever opened it with CAP_SYS_ADMIN.
///
/// # Errors
/// `SRCH`: the process has ended. Else those of openat(2), capget(2) and capset(2).
pub fn open(pid: u32, process: impl AsFd) -> Result<Vec<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, format!("/proc/{pid}"), flags, Mode::empty())?;
    // The number was this process's while it exists, so the directory is its own for ever.
    if !peer::exists(process) {
        return Err(Errno::SRCH);
    }
    let thread = format!("task/{}", other_thread(pid).unwrap_or(pid));
    let path = |file: ProcFile| match file {
        ProcFile::Stat => file.name().to_owned(),
        _ => format!("{thread}/{}", file.name()),
    };
    without_admin(|| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        ProcFile::ALL.iter().map(|&file| openat(&directory, path(file), flags, Mode::empty())).collect()
    })
}

/// A thread of a process that is not its first one: a process that asks for files has that thread
/// and the one that asks, which stays.
fn other_thread(pid: u32) -> Option<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).find(|&thread| thread != pid)
}

/// Calls `body` in a thread that has no CAP_SYS_ADMIN meanwhile.
fn without_admin<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let before = capabilities(None)?;
    let effective = before.effective - CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { effective, ..before })?;
    let result = body();
    set_capabilities(None, before)?;
    result
}

#[cfg(test)]
mod tests;

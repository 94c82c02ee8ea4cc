//! The files of `/proc` of a process that may not open its own any more.

use super::peer;
use folioswap_group::protocol::ProcFile;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, pread},
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};
use std::fs;

/// Opens these files of the process with this number and this pidfd, in their order, with no more
/// rights than a process without CAP_SYS_ADMIN: the kernel shows physical addresses in a pagemap to
/// whoever opened it with that.
///
/// The agent is in no program that got rights by its exec (set-user-id, file capabilities), so such
/// a process asks for nothing itself: somebody else does, who connected before that exec.
///
/// # Errors
/// `SRCH`: the process has ended. `PERM`: it is such a program. Else those of openat(2), read(2),
/// capget(2) and capset(2).
pub fn open(
    pid: u32,
    process: impl AsFd,
    wanted: impl Iterator<Item = ProcFile>,
) -> Result<Vec<OwnedFd>, Errno> {
    let mut wanted = wanted.peekable();
    if wanted.peek().is_none() {
        return Ok(Vec::new());
    }
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
    let open = |path: &str| openat(&directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let files = without_admin(|| wanted.map(|file| open(&path(file))).collect::<Result<Vec<_>, _>>())?;
    // It is asked last: an exec after this changes nothing in the files.
    if is_secure(&open("auxv")?)? { Err(Errno::PERM) } else { Ok(files) }
}

/// Whether the process's program got rights by its exec, from its `auxv`.
fn is_secure(auxv: &OwnedFd) -> Result<bool, Errno> {
    let mut bytes = [0; 1024];
    let length = pread(auxv, &mut bytes[..], 0)?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let mut entries = bytes[..length].chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    // A process without that entry has no memory any more, or is none that we know.
    Ok(entries.find(|&(key, _)| key == libc::AT_SECURE).is_none_or(|(_, value)| value != 0))
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

//! The files of `/proc` of a process that may not open its own any more.

use super::peer;
use folioswap_group::protocol::ProcFile;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, pread},
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};

/// Opens these files of the process with this number, in their order; those about its memory by its
/// pager, which has this number and this pidfd. That takes no more rights than a process without
/// CAP_SYS_ADMIN has: the kernel shows physical addresses in a pagemap to whoever opened it with
/// that.
///
/// The agent is in no program that got rights by its exec (set-user-id, file capabilities), so such
/// a process asks for nothing itself: somebody else does, who connected before that exec.
///
/// # Errors
/// `SRCH`: the process has ended. `PERM`: it is such a program. Else those of openat(2), read(2),
/// capget(2) and capset(2).
pub fn open(
    pid: u32,
    pager: u32,
    process: impl AsFd,
    wanted: impl Iterator<Item = ProcFile>,
) -> Result<Vec<OwnedFd>, Errno> {
    let mut wanted = wanted.peekable();
    if wanted.peek().is_none() {
        return Ok(Vec::new());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = |number: u32| openat(CWD, format!("/proc/{number}"), flags, Mode::empty());
    let (program, pager) = (directory(pid)?, directory(pager)?);
    // The numbers were these processes' while the pager exists, so the directories are their own
    // for ever.
    if !peer::exists(process) {
        return Err(Errno::SRCH);
    }
    let open = |file: &str, of: &OwnedFd| openat(of, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let files = without_admin(|| {
        let of = |file| if file == ProcFile::Stat { &program } else { &pager };
        wanted.map(|file| open(file.name(), of(file))).collect::<Result<Vec<_>, _>>()
    })?;
    // It is asked last: an exec after this changes nothing in the files.
    if is_secure(&open("auxv", &pager)?)? { Err(Errno::PERM) } else { Ok(files) }
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

//! The agent that is preloaded: it is embedded in the command and put into a sealed memfd at run
//! time, so that no file is left behind.

use crate::error::Error;
use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
};
use std::{borrow::Cow, fs, path::Path};

/// The agent that `build.rs` built; empty when the source tree had no agent.
static EMBEDDED: &[u8] = include_bytes!(env!("FOLIOSWAP_AGENT_FILE"));

/// Makes the memfd of the agent; `None` when the developer asked for no agent.
///
/// # Errors
/// This build has no agent, the file of `--agent` is unreadable, or the memfd cannot be made.
pub fn memfd(chosen: Option<&Path>) -> Result<Option<OwnedFd>, Error> {
    let bytes: Cow<'static, [u8]> = match chosen {
        Some(path) if path == Path::new("none") => return Ok(None),
        Some(path) => {
            Cow::Owned(fs::read(path).map_err(|source| Error::Agent { path: path.to_owned(), source })?)
        }
        None if EMBEDDED.is_empty() => return Err(Error::NoAgent),
        None => Cow::Borrowed(EMBEDDED),
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels from 6.3 can forbid executable memfds unless the flag asks for one; older kernels
    // refuse the flag.
    let fd = memfd_create("libfolioswap_agent.so", flags | MemfdFlags::EXEC)
        .or_else(|error| {
            if error == Errno::INVAL { memfd_create("libfolioswap_agent.so", flags) } else { Err(error) }
        })
        .map_err(Error::system("memfd_create for the agent"))?;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let written =
            rustix::io::write(&fd, rest).map_err(Error::system("writing the agent to its memfd"))?;
        rest = &rest[written..];
    }
    fcntl_add_seals(&fd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
        .map_err(Error::system("sealing the agent's memfd"))?;
    Ok(Some(fd))
}

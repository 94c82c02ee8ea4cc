//! Starts CMD: as the supervisor's child, with the signals that we inherited and the agent preloaded.

use crate::{error::Error, signals::Inherited};
use folioswap_group::protocol::GROUP_VARIABLE;
use rustix::{
    fd::{AsRawFd, OwnedFd},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};
use std::{
    env,
    ffi::{CString, OsString},
    io,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    ptr::null,
};

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// What is started.
pub struct Start {
    /// The file.
    pub program: PathBuf,
    /// Name and arguments as the user wrote them.
    pub arguments: Vec<OsString>,
    /// Name of the group's socket.
    pub group: String,
    /// The agent's memfd.
    pub agent: Option<OwnedFd>,
}

impl Start {
    /// Starts it; returns its process id.
    ///
    /// # Errors
    /// The kernel did not execute it (126, or 127 when it vanished), or fork failed (125).
    pub fn start(&self, inherited: &Inherited) -> Result<u32, Error> {
        let program = terminated(self.program.clone().into_os_string());
        let arguments: Vec<CString> = self.arguments.iter().cloned().map(terminated).collect();
        let environment: Vec<CString> = self.environment().map(terminated).collect();
        let mut shell_arguments = vec![c"sh".to_owned(), program.clone()];
        shell_arguments.extend(arguments.iter().skip(1).cloned());
        let (arguments, shell_arguments, environment) =
            (pointers(&arguments), pointers(&shell_arguments), pointers(&environment));
        let (outcome, report) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::system("pipe"))?;
        // SAFETY: this process has a single thread.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(Error::System { doing: "fork", source: io::Error::last_os_error() });
        }
        if pid == 0 {
            inherited.restore();
            // SAFETY: the pointers are to terminated strings in null-terminated arrays that live in this frame; on success
            // execve does not return. The write is of 4 bytes of a local, _exit ends the process.
            unsafe {
                libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                let mut error = *libc::__errno_location();
                if error == libc::ENOEXEC {
                    // A script without `#!`, as execvp does it.
                    libc::execve(c"/bin/sh".as_ptr(), shell_arguments.as_ptr(), environment.as_ptr());
                    error = *libc::__errno_location();
                }
                libc::write(report.as_raw_fd(), (&raw const error).cast(), size_of::<i32>());
                libc::_exit(126);
            }
        }
        drop(report);
        let mut error = [0_u8; 4];
        let length = loop {
            match rustix::io::read(&outcome, &mut error) {
                Err(Errno::INTR) => {}
                other => break other.unwrap_or(0),
            }
        };
        if length == error.len() {
            let source = io::Error::from_raw_os_error(i32::from_ne_bytes(error));
            let program = self.program.display().to_string();
            return Err(match source.kind() {
                io::ErrorKind::NotFound => Error::NoSuchProgram { program, source },
                _ => Error::NotExecutable { program, source },
            });
        }
        Ok(pid as u32)
    }

    /// Ours with the group's name and the agent, in front of what the user preloads. For the supervisor's child.
    fn environment(&self) -> impl Iterator<Item = OsString> + '_ {
        let agent = self.agent.as_ref();
        let preload = agent.map(|fd| {
            let mut value = OsString::from(format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()));
            if let Some(users) = env::var_os(PRELOAD_VARIABLE).filter(|users| !users.is_empty()) {
                value.push(":");
                value.push(users);
            }
            (OsString::from(PRELOAD_VARIABLE), value)
        });
        let replaced = preload.is_some();
        env::vars_os()
            .filter(move |(name, _)| name != GROUP_VARIABLE && !(replaced && name == PRELOAD_VARIABLE))
            .chain([(GROUP_VARIABLE.into(), self.group.clone().into())])
            .chain(preload)
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                name
            })
    }
}

fn terminated(text: OsString) -> CString {
    // Arguments and environment come from the kernel, which ends them at a zero byte.
    CString::new(text.into_vec()).unwrap_or_else(|error| {
        let position = error.nul_position();
        let mut bytes = error.into_vec();
        bytes.truncate(position);
        CString::new(bytes).unwrap_or_default()
    })
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_environment_names_the_group_once() {
        let start = Start {
            program: "/bin/true".into(),
            arguments: vec![],
            group: "folioswap-x".into(),
            agent: None,
        };
        let names =
            start.environment().filter(|entry| entry.as_bytes().starts_with(GROUP_VARIABLE.as_bytes()));
        assert_eq!(names.collect::<Vec<_>>(), ["FOLIOSWAP_GROUP=folioswap-x"]);
    }
}

//! Starts CMD as the supervisor's child, with the signals that we inherited and with the agent
//! preloaded, or put into it.

use super::{
    descriptors::path_for_others,
    inject::{Injector, NotInjected},
    program::{Boarding, ProgramError},
    signals::{Arrived, Inherited, Signals, pending_here},
};
use crate::STATUS_REFUSED;
use folioswap_group::protocol::GROUP_VARIABLE;
use rustix::{
    fd::{AsRawFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};
use std::{
    env,
    ffi::{CString, OsString},
    io,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    ptr::null,
    sync::Arc,
};

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// The options of AddressSanitizer. Where its library is not the first object it ends the program,
/// unless it is told not to look.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
const ANY_LINK_ORDER: &str = "verify_asan_link_order=0";

/// CMD before its start.
pub struct Start {
    /// The path that execve(2) gets.
    pub program: PathBuf,
    /// The name and the arguments as the user wrote them.
    pub arguments: Vec<OsString>,
    /// The abstract name of the group's socket.
    pub group: String,
    /// The agent, or the directory that has it; `None` preloads nothing.
    pub agent: Option<OwnedFd>,
    /// The name of the agent in that directory; `None` when the descriptor is the agent itself.
    pub agent_name: Option<String>,
    /// How the agent gets into the program.
    pub boarding: Boarding,
    /// What puts the agent into programs that cannot preload it, where that is possible.
    pub injector: Option<Arc<Injector>>,
}

/// Why CMD was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel did not execute the program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The agent, which the program cannot preload, could not be put into it.
    #[error("{}: the agent cannot be put into it: {source}; the program was ended before it began", path.display())]
    NotInjected {
        /// The program.
        path: PathBuf,
        /// The reason.
        source: NotInjected,
    },
    /// A step that works on every supported kernel failed.
    #[error("{doing}: {source}; nothing was started")]
    System {
        /// The step.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl StartError {
    /// The exit status for this error, as in env(1).
    pub fn status(&self) -> i32 {
        match self {
            StartError::Program(error) => error.status(),
            StartError::NotInjected { .. } | StartError::System { .. } => STATUS_REFUSED,
        }
    }
}

/// CMD after its start.
pub struct Started {
    /// The process id of CMD.
    pub pid: u32,
    /// Signals that were taken off our queue meanwhile and that reached CMD's process as well.
    /// Signals from before that process existed are left out, so that they are still passed on: CMD
    /// has not got them.
    pub reached_both: Vec<Arrived>,
}

impl Start {
    /// Starts CMD. `signals` are those of the calling process, which has them blocked; so they are
    /// blocked in the child too, until [`Inherited`] puts the mask back. The calling process must
    /// have a single thread.
    ///
    /// # Errors
    /// The kernel did not execute the program (126, or 127 when it vanished), or fork failed (125).
    pub fn start(&self, inherited: &Inherited, signals: &Signals) -> Result<Started, StartError> {
        let program = terminated(self.program.clone().into_os_string());
        let arguments: Vec<CString> = self.arguments.iter().cloned().map(terminated).collect();
        let environment: Vec<CString> = self.environment().map(terminated).collect();
        let mut shell_arguments = vec![c"sh".to_owned(), program.clone()];
        shell_arguments.extend(arguments.iter().skip(1).cloned());
        let (arguments, shell_arguments, environment) =
            (pointers(&arguments), pointers(&shell_arguments), pointers(&environment));
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| StartError::System { doing: "socketpair", source: errno.into() })?;
        // SAFETY: this process has a single thread.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(StartError::System { doing: "fork", source: io::Error::last_os_error() });
        }
        if pid == 0 {
            drop(ours);
            // The child reports its pending signals only after the parent has taken its own off its
            // queue. A signal that the parent took and the child does not have was sent before the
            // child was made.
            if rustix::io::read(&theirs, &mut [0]) != Ok(1) {
                // SAFETY: ends the process.
                unsafe { libc::_exit(126) };
            }
            let _ = rustix::io::write(&theirs, &pending_here().to_ne_bytes());
            inherited.restore();
            // SAFETY: the pointers are to terminated strings in null-terminated arrays that live in
            // this frame; on success execve does not return. The write is of 4 bytes of a local,
            // and _exit ends the process.
            unsafe {
                libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                let mut error = *libc::__errno_location();
                if error == libc::ENOEXEC {
                    // A script without `#!` goes to the shell, as with execvp.
                    libc::execve(c"/bin/sh".as_ptr(), shell_arguments.as_ptr(), environment.as_ptr());
                    error = *libc::__errno_location();
                }
                libc::write(theirs.as_raw_fd(), (&raw const error).cast(), size_of::<i32>());
                libc::_exit(126);
            }
        }
        drop(theirs);
        let not_injected = |source| StartError::NotInjected { path: self.program.clone(), source };
        let traced = self.injector.as_ref().filter(|_| self.boarding == Boarding::Inject);
        let traced =
            traced.map(|injector| injector.trace(pid as u32, pid as u32).map(|tracee| (injector, tracee)));
        let traced = traced.transpose().map_err(not_injected)?;
        let early: Vec<Arrived> = std::iter::from_fn(|| signals.next()).collect();
        let _ = rustix::io::write(&ours, &[1]);
        let pending = read_whole(&ours).map_or(0, u64::from_ne_bytes);
        let reached_both = early.into_iter().filter(|signal| signal.is_in(pending)).collect();
        if let Some((injector, tracee)) = traced {
            match injector.follow(tracee, &ours) {
                Ok(()) => return Ok(Started { pid: pid as u32, reached_both }),
                // The child says why.
                Err(NotInjected::NoExec) => {}
                Err(source) => {
                    // SAFETY: ends our own child, which has not been waited for.
                    unsafe { libc::kill(pid, libc::SIGKILL) };
                    return Err(not_injected(source));
                }
            }
        }
        if let Some(error) = read_whole(&ours) {
            let source = io::Error::from_raw_os_error(i32::from_ne_bytes(error));
            let program = self.program.display().to_string();
            return Err(match source.kind() {
                io::ErrorKind::NotFound => ProgramError::NoSuchProgram { program, source },
                _ => ProgramError::NotExecutable { program, source },
            }
            .into());
        }
        Ok(Started { pid: pid as u32, reached_both })
    }

    /// Our environment with the name of the group, and with the agent in front of the user's own
    /// preloaded objects, which AddressSanitizer is told to bear. The path of the agent is valid as
    /// long as the calling process lives. Afterwards it names nothing:
    /// `docs/decisions/0038-the-agents-name.md`.
    fn environment(&self) -> impl Iterator<Item = OsString> + '_ {
        let agent = self.agent.as_ref();
        let preload = agent.map(|fd| {
            let mut value = OsString::from(path_for_others(fd, self.agent_name.as_deref()));
            if let Some(users) = env::var_os(PRELOAD_VARIABLE).filter(|users| !users.is_empty()) {
                value.push(":");
                value.push(users);
            }
            (OsString::from(PRELOAD_VARIABLE), value)
        });
        let sanitizer = agent.map(|_| {
            let mut value = env::var_os(SANITIZER_VARIABLE).unwrap_or_default();
            if !value.is_empty() {
                value.push(":");
            }
            value.push(ANY_LINK_ORDER);
            (OsString::from(SANITIZER_VARIABLE), value)
        });
        let is_ours = [PRELOAD_VARIABLE, SANITIZER_VARIABLE].map(|name| agent.map(|_| name));
        env::vars_os()
            .filter(move |(name, _)| {
                name != GROUP_VARIABLE && !is_ours.iter().flatten().any(|ours| name == ours)
            })
            .chain([(GROUP_VARIABLE.into(), self.group.clone().into())])
            .chain(preload)
            .chain(sanitizer)
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                name
            })
    }
}

/// Reads `N` bytes that the other side sends in one piece; `None` when it has closed.
fn read_whole<const N: usize>(from: &OwnedFd) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    loop {
        match rustix::io::read(from, &mut bytes) {
            Err(Errno::INTR) => {}
            got => return (got == Ok(N)).then_some(bytes),
        }
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
mod tests;

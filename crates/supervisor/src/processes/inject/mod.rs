//! The agent in programs that no dynamic linker can preload it into: static ones, those of musl,
//! and Go's.
//!
//! The kernel stops such a program at its exec, before its first instruction (ptrace(2)). The
//! supervisor has it map the agent, relocates that, and leads the program into the agent, which
//! returns to where the program begins. It is traced no more then.

mod image;
mod stops;
mod tracee;

use super::{
    descriptors::path_for_others,
    elf::{self, Image},
    proc, program,
};
use folioswap_group::letter::{Letter, NO_PRELOAD};
use image::AgentImage;
use rustix::{
    fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    io::Errno,
    process::Pid,
};
use std::{
    ffi::CString,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
};
use stops::Stops;
pub use tracee::Tracee;

/// Everything that it takes to put the agent into programs.
pub struct Injector {
    image: AgentImage,
    /// The descriptor of the agent, or of the directory in which it has this name.
    descriptor: RawFd,
    name: Option<String>,
    group: String,
    stops: Stops,
}

/// Why the agent is not in a program.
#[derive(Debug, thiserror::Error)]
pub enum NotInjected {
    /// The exec has failed, or the process has ended before.
    #[error("nothing was executed")]
    NoExec,
    /// The program runs with a privilege, which whoever traces it must leave alone.
    #[error("it runs with a privilege")]
    Privileged,
    /// The kernel does not let this process trace that one.
    #[error("it cannot be traced ({0})")]
    NotTraced(Errno),
    /// The exec was announced, and is not made.
    #[error("its exec takes too long")]
    TooLong,
    /// A step that the program had to make failed.
    #[error("{doing} failed ({errno})")]
    Failed {
        /// The step.
        doing: &'static str,
        /// The reason.
        errno: Errno,
    },
}

impl NotInjected {
    /// A step has failed, unless the program was killed.
    fn by(doing: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::SRCH => NotInjected::NoExec,
            errno => NotInjected::Failed { doing, errno },
        }
    }
}

impl Injector {
    /// Reads the agent, to which this descriptor and this name in it lead.
    ///
    /// # Errors
    /// It cannot be read, or is no object that this code understands.
    pub fn of(agent: &OwnedFd, name: Option<String>, group: String) -> io::Result<Self> {
        let path = path_for_others(agent, name.as_deref());
        let found = fs::metadata(&path)?;
        let image =
            AgentImage::parse(&fs::read(path)?, (found.dev(), found.ino())).map_err(io::Error::other)?;
        Ok(Injector { image, descriptor: agent.as_raw_fd(), name, group, stops: Stops::default() })
    }

    /// The path by which programs open the agent.
    fn path(&self) -> CString {
        // SAFETY: the supervisor keeps the agent open as long as it lives.
        let agent = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        CString::new(path_for_others(agent, self.name.as_deref())).unwrap_or_default()
    }

    /// Begins to trace a thread of this process that is about to execute something.
    ///
    /// # Errors
    /// [`NotInjected::NotTraced`].
    pub fn trace(&self, process: u32, thread: u32) -> Result<Tracee<'_>, NotInjected> {
        let number = |of: u32| i32::try_from(of).ok().and_then(Pid::from_raw).ok_or(NotInjected::NoExec);
        Tracee::seize(number(process)?, number(thread)?, &self.stops)
    }

    /// Takes a stop that waitpid(2) has told of; returns whether it is one of a thread that is
    /// traced.
    pub fn hand_over(&self, thread: u32, status: i32) -> bool {
        self.stops.hand_over(thread, status)
    }

    /// Takes the processes that were stopped while they were traced, of which waitpid(2) does not
    /// tell any more, once they have stopped again without a tracer.
    pub fn take_stopped(&self, is_stopped: impl Fn(u32) -> bool) -> Vec<u32> {
        self.stops.take_stopped(is_stopped)
    }

    /// Waits for the exec of a thread that is traced, and puts the agent into its new image.
    /// `said` is the other end of what the thread closes by its exec, and says that it has failed
    /// by.
    ///
    /// # Errors
    /// Why the agent is not in it; the program goes on without, or has ended.
    pub fn follow(&self, mut tracee: Tracee<'_>, said: &OwnedFd) -> Result<(), NotInjected> {
        tracee.wait_for_exec(said)?;
        self.board(&mut tracee)
    }

    /// Puts the agent into a program that stands at its first instruction.
    fn board(&self, tracee: &mut Tracee<'_>) -> Result<(), NotInjected> {
        let pid = tracee.pid();
        if proc::is_secure(pid) != Some(false) {
            return Err(NotInjected::Privileged);
        }
        let executed = File::open(format!("/proc/{pid}/exe")).and_then(|file| elf::inspect(&file));
        let flags = match executed {
            Ok(Image::Dynamic { interpreter }) if program::is_musls(&interpreter) => NO_PRELOAD,
            Ok(Image::Foreign { .. }) => {
                return Err(NotInjected::by("a look at its file")(Errno::NOEXEC));
            }
            _ => 0,
        };
        tracee.call_from_here(|calls| {
            let path = self.path();
            let start = self.image.load(calls, &path)?;
            self.enter(calls, start, flags, path.as_bytes())
        })
    }

    /// Writes the agent's letter at the lowest address of the stack, and leads the program to the
    /// agent's start.
    fn enter(
        &self,
        calls: &mut tracee::Calls<'_>,
        start: u64,
        flags: u64,
        path: &[u8],
    ) -> Result<(), NotInjected> {
        let (entry, stack) = calls.begins_at();
        let letter = Letter {
            entry,
            stack,
            third: calls.third_argument(),
            flags,
            group_bytes: self.group.len() as u64,
            agent_bytes: path.len() as u64,
        };
        let mut bytes: Vec<u8> = letter.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend_from_slice(self.group.as_bytes());
        bytes.extend_from_slice(path);
        let at = (stack - bytes.len() as u64) & !15;
        calls.write(at, &bytes)?;
        calls.begin_at(start, at);
        Ok(())
    }
}

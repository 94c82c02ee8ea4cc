//! Kills a process, or one that it has forked, at the Nth of the system calls that its seccomp
//! filter reports.
//!
//! The traced program installs a seccomp filter that answers `SECCOMP_RET_TRACE` for some calls;
//! all others run at full speed. A thread of this crate traces the program and all processes that
//! it forks, counts those calls over all of their threads, and kills the process that makes the Nth
//! call before the kernel carries it out: of a pager's call, the program whose pager it is. Source:
//! ptrace(2), seccomp(2).

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

const OPTIONS: i32 = libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

/// The thread that traces one process and its descendants, until the last of them has ended.
pub struct Killer(JoinHandle<io::Result<usize>>);

impl Killer {
    /// Traces `pid`, a descendant of the caller with one thread that will make the calls, and kills
    /// at call number `number` (from 1). The process is traced when this returns.
    ///
    /// # Errors
    /// The process cannot be traced: ptrace is forbidden, or another tracer is attached.
    pub fn at_call(pid: i32, number: usize) -> io::Result<Self> {
        let (tell, told) = mpsc::channel();
        // Only the thread that traces a process can wait for it.
        let thread = std::thread::spawn(move || {
            let seized = request(libc::PTRACE_SEIZE, pid, OPTIONS as usize);
            let is_seized = seized.is_ok();
            let _ = tell.send(seized);
            if is_seized { trace(number) } else { Ok(0) }
        });
        told.recv().map_err(io::Error::other)??;
        Ok(Killer(thread))
    }

    /// Waits until all traced processes have ended. Returns the number of calls seen.
    ///
    /// # Errors
    /// The kernel's answer to a request that may not fail.
    pub fn wait_for_the_last(self) -> io::Result<usize> {
        self.0.join().expect("it does not panic")
    }
}

fn request(request: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made here has an address; the kernel checks whose tracer we are.
    match unsafe { libc::ptrace(request, pid, 0, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The program whose pager this thread belongs to, or else the thread itself.
fn program_of(thread: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_pager = field("Name:").is_some_and(|name| name.starts_with("pager-"));
    field("PPid:").filter(|_| is_pager).and_then(|parent| parent.parse().ok()).unwrap_or(thread)
}

fn trace(number: usize) -> io::Result<usize> {
    let mut seen = 0;
    loop {
        let mut status = 0;
        // SAFETY: the pointer is valid for writing. The call waits for tracees of this thread
        // alone, because the thread has no children.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if pid < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ECHILD) => return Ok(seen),
                Some(libc::EINTR) => continue,
                _ => return Err(error),
            }
        }
        if !libc::WIFSTOPPED(status) {
            continue;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if event == libc::PTRACE_EVENT_SECCOMP {
            seen += 1;
            if seen == number {
                // SAFETY: no memory effects; it is stopped, so it is still the one that we trace,
                // and its parent waits for nothing of it.
                unsafe { libc::kill(program_of(pid), libc::SIGKILL) };
            }
        }
        // A stop that ptrace itself caused has no signal to deliver.
        let delivered = if event == 0 { signal } else { 0 };
        match request(libc::PTRACE_CONT, pid, delivered as usize) {
            // The process was killed meanwhile. Its end is waited for like any other.
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error),
            _ => {}
        }
    }
}

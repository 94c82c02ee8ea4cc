//! Signals: the inherited state, which CMD must find again, and the descriptor through which we
//! read our own signals.

use super::limits::Limits;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{io, mem::MaybeUninit, ptr::null_mut};

/// The signals that the front passes on to CMD when they were sent to the front alone.
const FORWARDED: &[i32] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// The state that our caller left and CMD gets back: the signal mask, the dispositions of the
/// signals that we change, and the resource limits that we raise.
pub struct Inherited {
    mask: libc::sigset_t,
    dispositions: [(i32, libc::sigaction); 3],
    /// The resource limits.
    pub limits: Limits,
}

impl Inherited {
    /// Reads the state of this process. Must be called before any code of ours changes it.
    pub fn capture() -> Self {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: a null set changes nothing; the old mask is written to `mask`.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
        let disposition = |signal| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: a null new action changes nothing; the old one is written.
            unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: an all-zero sigaction is valid (the default), and the call above overwrote
            // it.
            (signal, unsafe { action.assume_init() })
        };
        // SAFETY: sigprocmask cannot fail with these arguments and wrote the mask.
        let mask = unsafe { mask.assume_init() };
        let dispositions = [libc::SIGPIPE, libc::SIGCHLD, libc::SIGXFSZ].map(disposition);
        Inherited { mask, dispositions, limits: Limits::capture() }
    }

    /// Puts the state back. Called in CMD's process before exec; async-signal-safe.
    pub fn restore(&self) {
        self.limits.restore();
        for (signal, action) in &self.dispositions {
            // SAFETY: installs a disposition that this process had before (default or ignored after
            // an exec).
            unsafe { libc::sigaction(*signal, action, null_mut()) };
        }
        // SAFETY: sets a mask that this process had before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, null_mut()) };
    }
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The number of the signal.
    pub signal: i32,
    /// `si_code`, which tells the kind of sender (`SI_USER`, `SI_KERNEL`, ...).
    pub code: i32,
    /// The sending process, when a process sent the signal.
    pub pid: u32,
}

impl Arrived {
    /// Whether this is one of the signals that the front passes on.
    pub fn is_forwarded(&self) -> bool {
        FORWARDED.contains(&self.signal) || (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&self.signal)
    }

    /// Whether the number of the signal is in a set of [`pending_here`].
    pub fn is_in(&self, set: u64) -> bool {
        self.signal.checked_sub(1).is_some_and(|bit| bit < 64 && set >> bit & 1 != 0)
    }
}

/// The signals that wait for the calling process because they are blocked; signal n is bit n - 1.
/// Async-signal-safe.
pub fn pending_here() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigpending writes the set; it fails only for a bad address.
    let set = unsafe {
        libc::sigpending(set.as_mut_ptr());
        set.assume_init()
    };
    // SAFETY: the set is initialised, the numbers are valid.
    let is_in = |signal: i32| unsafe { libc::sigismember(&raw const set, signal) } == 1;
    (1..=64).filter(|&signal| is_in(signal)).fold(0, |bits, signal| bits | 1 << (signal - 1))
}

/// The signals of this process, read from a descriptor instead of delivered.
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals that we handle and opens the descriptor. SIGPIPE becomes ignored. SIGCHLD
    /// gets its default, since a caller that ignores it would keep us from waiting for children.
    ///
    /// # Errors
    /// Of signalfd(2): the process may have no more descriptors.
    pub fn new() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, sigaddset adds valid numbers.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in FORWARDED.iter().chain(&[libc::SIGCHLD, libc::SIGTTIN, libc::SIGTTOU]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        };
        // SAFETY: plain dispositions; no handler is installed.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, null_mut());
        }
        // SAFETY: a new signalfd over an initialised set.
        let number = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// Takes the next signal that waits, if any.
    pub fn next(&self) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: reads at most `size` bytes into a buffer of that size.
        let got = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if got != size as isize {
            return None;
        }
        // SAFETY: a whole record was read, and all its fields are integers.
        let info = unsafe { info.assume_init() };
        Some(Arrived { signal: info.ssi_signo as i32, code: info.ssi_code, pid: info.ssi_pid })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

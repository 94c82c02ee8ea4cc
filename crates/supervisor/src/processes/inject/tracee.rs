//! A thread that is traced until it has executed something, and the system calls that it makes for
//! the tracer.

use super::{
    NotInjected,
    stops::{self, Look, Stop, Stops, ask, ask_with},
};
use crate::processes::{last_error, proc};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::Pid,
};
use std::{
    ffi::CStr,
    mem::MaybeUninit,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

/// How long a look at the socket waits before one at the thread.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// How long an exec may take, from when it is announced.
const PATIENCE: Duration = Duration::from_secs(20);
/// Steps until a call must have been made: a thread may stop before its first instruction.
const STEPS: u32 = 16;
/// The instruction of a system call, and its bytes.
const CALL: u64 = 0x050f;
const CALL_BYTES: u64 = 2;
/// Bytes below the stack pointer that are left alone.
const BELOW_STACK: u64 = 4096;

/// A thread that this one traces. It is let go when this is dropped.
pub struct Tracee<'a> {
    thread: Pid,
    /// Its process, whose number the thread has after the exec.
    process: Pid,
    stops: &'a Stops,
    /// Signals that came while it made calls for us.
    held_back: Vec<i32>,
    /// Whether all of the process was stopped, of which nobody else has heard.
    saw_stop: bool,
}

impl<'a> Tracee<'a> {
    /// Traces a thread until it executes something.
    pub(super) fn seize(process: Pid, thread: Pid, stops: &'a Stops) -> Result<Self, NotInjected> {
        stops.keep([process, thread]);
        if let Err(errno) = ask(libc::PTRACE_SEIZE, thread, libc::PTRACE_O_TRACEEXEC.into()) {
            stops.forget([process, thread]);
            let is_there = proc::is_exiting(process.as_raw_pid() as u32) == Some(false);
            return Err(if is_there { NotInjected::NotTraced(errno) } else { NotInjected::NoExec });
        }
        Ok(Tracee { thread, process, stops, held_back: Vec::new(), saw_stop: false })
    }

    /// Looks at the thread, which is its process's only one, with that number, after an exec.
    fn look(&mut self) -> Look {
        match self.stops.look(self.thread) {
            Look::Ended if self.thread != self.process => {
                self.stops.forget([self.thread]);
                self.thread = self.process;
                self.stops.look(self.thread)
            }
            found => found,
        }
    }

    /// The process, once the thread has executed something.
    pub(super) fn pid(&self) -> u32 {
        self.thread.as_raw_pid() as u32
    }

    /// Waits until the thread stands at the first instruction of what it has executed.
    pub(super) fn wait_for_exec(&mut self, said: &OwnedFd) -> Result<(), NotInjected> {
        let until = Instant::now() + PATIENCE;
        let mut is_closed = false;
        while Instant::now() < until {
            // With its descriptors closed the stop is near, or the end.
            let found = if is_closed { stops::wait(|| self.look(), Some(until)) } else { self.look() };
            match found {
                Look::Stopped(Stop::Exec) => return Ok(()),
                Look::Stopped(stop) => self.go_on(stop)?,
                Look::Ended => return Err(NotInjected::NoExec),
                Look::Runs => {
                    let mut polled = [PollFd::new(said, PollFlags::IN)];
                    let _ = poll(&mut polled, Some(&LOOK));
                    let events = polled[0].revents();
                    is_closed = events.contains(PollFlags::HUP);
                    if events.contains(PollFlags::IN) && !is_closed {
                        // The exec has failed.
                        return Err(NotInjected::NoExec);
                    }
                }
            }
        }
        Err(NotInjected::TooLong)
    }

    /// Lets the thread go on after a stop as it would without a tracer.
    fn go_on(&mut self, stop: Stop) -> Result<(), NotInjected> {
        self.saw_stop |= stop == Stop::Group;
        let result = match stop {
            Stop::Group => ask(libc::PTRACE_LISTEN, self.thread, 0),
            Stop::Signal(signal) => ask(libc::PTRACE_CONT, self.thread, signal.into()),
            Stop::Step => ask(libc::PTRACE_CONT, self.thread, libc::SIGTRAP.into()),
            Stop::Exec | Stop::Interrupted => ask(libc::PTRACE_CONT, self.thread, 0),
        };
        // It may have been killed.
        result.map_err(|_| NotInjected::NoExec)
    }

    /// Lets `work` have the thread make calls where it stands. Where that fails, the thread goes on
    /// as if nothing had been.
    pub(super) fn call_from_here(
        &mut self,
        work: impl FnOnce(&mut Calls<'_>) -> Result<(), NotInjected>,
    ) -> Result<(), NotInjected> {
        let before = self.registers()?;
        // A whole word, unless the call crosses its end: it may be the last of a mapping.
        let at = if before.rip % 8 == 7 { before.rip } else { before.rip & !7 };
        let shift = (before.rip - at) * 8;
        let text = self.peek(at)?;
        self.poke(at, text & !(0xffff << shift) | CALL << shift)?;
        let mut calls =
            Calls { tracee: self, held_back: Vec::new(), saw_stop: false, begins: before, goes_on: None };
        let result = work(&mut calls);
        let Calls { held_back, saw_stop, goes_on, .. } = calls;
        self.held_back.extend(held_back);
        self.saw_stop |= saw_stop;
        self.poke(at, text)?;
        self.set_registers(&result.as_ref().ok().and(goes_on).unwrap_or(before))?;
        result
    }

    fn registers(&self) -> Result<libc::user_regs_struct, NotInjected> {
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        // SAFETY: the kernel writes one structure.
        unsafe { ask_with(libc::PTRACE_GETREGS, self.thread, 0, registers.as_mut_ptr().cast()) }
            .map_err(NotInjected::by("reading its registers"))?;
        // SAFETY: written by the kernel.
        Ok(unsafe { registers.assume_init() })
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) -> Result<(), NotInjected> {
        let data = (&raw const *registers).cast_mut().cast();
        // SAFETY: the kernel reads one structure.
        unsafe { ask_with(libc::PTRACE_SETREGS, self.thread, 0, data) }
            .map_err(NotInjected::by("setting its registers"))
    }

    /// The word at an address of the program's, also where that may not read it.
    fn peek(&self, address: u64) -> Result<u64, NotInjected> {
        let mut word = 0u64;
        // SAFETY: the kernel writes one word.
        unsafe { ask_with(libc::PTRACE_PEEKTEXT, self.thread, address, (&raw mut word).cast()) }
            .map_err(NotInjected::by("reading its code"))?;
        Ok(word)
    }

    /// Writes a word, also where the program may not.
    fn poke(&self, address: u64, word: u64) -> Result<(), NotInjected> {
        // SAFETY: the kernel writes to the other process only.
        unsafe { ask_with(libc::PTRACE_POKETEXT, self.thread, address, word as *mut libc::c_void) }
            .map_err(NotInjected::by("writing its code"))
    }
}

impl Drop for Tracee<'_> {
    fn drop(&mut self) {
        if ask(libc::PTRACE_DETACH, self.thread, 0).is_err() {
            // It runs: only a thread that has stopped can be let go.
            if ask(libc::PTRACE_INTERRUPT, self.thread, 0).is_ok() {
                let until = Instant::now() + PATIENCE;
                while let Look::Stopped(stop) = stops::wait(|| self.look(), Some(until)) {
                    let signal = if let Stop::Signal(signal) = stop { signal.into() } else { 0 };
                    if ask(libc::PTRACE_DETACH, self.thread, signal).is_ok() {
                        break;
                    }
                }
            }
        }
        self.stops.forget([self.process, self.thread]);
        if self.saw_stop {
            self.stops.note_stopped(self.process);
        }
        for signal in self.held_back.drain(..) {
            // SAFETY: sends a signal that was the process's to the same process.
            unsafe { libc::kill(self.thread.as_raw_pid(), signal) };
        }
    }
}

/// Calls that a thread makes for its tracer.
pub(super) struct Calls<'a> {
    tracee: &'a Tracee<'a>,
    held_back: Vec<i32>,
    saw_stop: bool,
    begins: libc::user_regs_struct,
    goes_on: Option<libc::user_regs_struct>,
}

impl Calls<'_> {
    /// Where the program begins, and its stack pointer there.
    pub(super) fn begins_at(&self) -> (u64, u64) {
        (self.begins.rip, self.begins.rsp)
    }

    /// What the program finds in rdx.
    pub(super) fn third_argument(&self) -> u64 {
        self.begins.rdx
    }

    /// Has the program begin elsewhere, with another stack pointer.
    pub(super) fn begin_at(&mut self, address: u64, stack: u64) {
        self.goes_on = Some(libc::user_regs_struct { rip: address, rsp: stack, ..self.begins });
    }

    /// Opens a file for reading.
    pub(super) fn open(&mut self, path: &CStr) -> Result<u64, NotInjected> {
        let bytes = path.to_bytes_with_nul();
        let at = (self.begins.rsp - BELOW_STACK - bytes.len() as u64) & !15;
        self.write(at, bytes)?;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        self.call(libc::SYS_openat, [libc::AT_FDCWD as u64, at, flags, 0, 0, 0], "opening the agent")
    }

    /// Device and number of a file that the program has opened.
    pub(super) fn identity_of(&self, file: u64) -> Option<(u64, u64)> {
        let path = format!("/proc/{}/fd/{file}", self.tracee.pid());
        std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
    }

    pub(super) fn close(&mut self, file: u64) -> Result<(), NotInjected> {
        self.call(libc::SYS_close, [file, 0, 0, 0, 0, 0], "close").map(drop)
    }

    /// Reserves addresses, where nothing may be accessed.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<u64, NotInjected> {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        self.call(libc::SYS_mmap, [0, bytes, 0, flags, u64::MAX, 0], "reserving addresses")
    }

    /// Maps memory, or a part of a file, at these addresses.
    pub(super) fn map(
        &mut self,
        address: u64,
        bytes: u64,
        protection: u64,
        file: Option<(u64, u64)>,
    ) -> Result<(), NotInjected> {
        let (file, offset) = file.unwrap_or((u64::MAX, 0));
        let kind = if file == u64::MAX { libc::MAP_ANONYMOUS } else { 0 };
        let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE | kind) as u64;
        self.call(libc::SYS_mmap, [address, bytes, protection, flags, file, offset], "mapping the agent")
            .map(drop)
    }

    /// Writes to memory of the program's.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), NotInjected> {
        let ours = libc::iovec { iov_base: bytes.as_ptr() as *mut libc::c_void, iov_len: bytes.len() };
        let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: the kernel reads these bytes, and writes to the other process.
        let written = unsafe {
            libc::process_vm_writev(
                self.tracee.thread.as_raw_pid(),
                &raw const ours,
                1,
                &raw const theirs,
                1,
                0,
            )
        };
        let result = match usize::try_from(written) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(Errno::FAULT),
            Err(_) => Err(last_error()),
        };
        result.map_err(NotInjected::by("writing to its memory"))
    }

    /// Has the thread make a system call. Signals wait meanwhile.
    fn call(
        &mut self,
        number: libc::c_long,
        [first, second, third, fourth, fifth, sixth]: [u64; 6],
        doing: &'static str,
    ) -> Result<u64, NotInjected> {
        let begins = self.begins;
        let registers = libc::user_regs_struct {
            rax: number as u64,
            // Nothing is to be restarted.
            orig_rax: u64::MAX,
            rdi: first,
            rsi: second,
            rdx: third,
            r10: fourth,
            r8: fifth,
            r9: sixth,
            ..begins
        };
        let thread = self.tracee.thread;
        let made = begins.rip + CALL_BYTES;
        self.tracee.set_registers(&registers)?;
        for _ in 0..STEPS {
            ask(libc::PTRACE_SINGLESTEP, thread, 0).map_err(NotInjected::by(doing))?;
            let stop = stops::wait(|| self.tracee.stops.look(thread), None);
            match stop {
                Look::Stopped(Stop::Signal(libc::SIGSYS)) => return Err(NotInjected::by(doing)(Errno::PERM)),
                Look::Stopped(Stop::Signal(signal)) => self.held_back.push(signal),
                Look::Stopped(Stop::Group) => self.saw_stop = true,
                Look::Stopped(_) => {}
                Look::Runs | Look::Ended => return Err(NotInjected::NoExec),
            }
            let now = self.tracee.registers()?;
            if now.rip != made {
                // The exec ends by the first step, and writes its own result.
                self.tracee.set_registers(&registers)?;
                continue;
            }
            // Another stop may come before that of the step, whose signal would kill later.
            if stop != Look::Stopped(Stop::Step) {
                continue;
            }
            let answer = now.rax as i64;
            if (-4095..0).contains(&answer) {
                return Err(NotInjected::by(doing)(Errno::from_raw_os_error(-answer as i32)));
            }
            return Ok(now.rax);
        }
        Err(NotInjected::by(doing)(Errno::AGAIN))
    }
}

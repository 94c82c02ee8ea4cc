//! The process that an engine belongs to: the program.
//!
//! The pager of a group's member is a process of its own, which shares the program's memory. It
//! ends with the program, and when the program becomes another image by exec; if it cannot go on
//! itself, it ends the program first, since the program would read zeroes. An embedder's pager is
//! made of threads of the program.

use crate::engine::Engine;
use crate::engine::placement::FollowedProgram;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::proc::{Shown, parent_number, read_proc};
use crate::kernel::{maps, process, processor, sys};
use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use rustix::event::Timespec;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// How long the pager waits for the end of a program that it has killed.
const END_PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The program's process is the pager's.
const OWN: u32 = u32::MAX;

/// No thread of the program is about to exec.
const NO_EXEC: u32 = 0;

/// A thread of the program prepares its exec.
const EXEC_PREPARED: u32 = 2;

/// A thread of the program is about to exec; [`ProgramProcess::exec_word`] says when it has.
const EXEC_BEGINS: u32 = 1;

/// The process that an engine belongs to.
#[repr(C)]
pub struct ProgramProcess {
    /// Its number; a child made by a bare clone(2) has a copy of the engine that belongs to no
    /// process.
    number: AtomicU32,
    /// The same in the view of the pager's `/proc`; 0 where that does not show it, [`OWN`] where it
    /// is the pager's process too.
    number_in_proc: AtomicU32,
    /// Its descriptor in the pager's table; -1 where the pager's threads are its own.
    pidfd: AtomicI32,
    /// [`NO_EXEC`], [`EXEC_PREPARED`] or [`EXEC_BEGINS`].
    exec: AtomicU32,
    /// The number of the thread that is about to exec; the kernel clears it when the thread leaves
    /// this memory (a futex).
    exec_word: AtomicU32,
    /// The distance from the start of a thread's control block to the word that the kernel clears
    /// at its end: the C library's, the same for all of its threads. 0: nobody knows it.
    exit_word_offset: AtomicUsize,
}

/// How an exec is watched, for the thread that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedExec {
    /// The word that the kernel was to clear before.
    word: usize,
}

impl Engine {
    /// Whether this copy of the engine belongs to the calling process.
    pub fn is_ours(&self) -> bool {
        self.program_process.number.load(Acquire) == sys::getpid()
    }

    /// Makes the engine the calling process's; its pager is not known yet.
    pub(crate) fn own(&self) {
        self.program_process.pidfd.store(-1, Relaxed);
        self.program_process.number_in_proc.store(OWN, Relaxed);
        self.program_process.exec.store(NO_EXEC, Relaxed);
        self.program_process.number.store(sys::getpid(), Release);
    }

    /// Opens the program's process, whose memory the calling process shares, and whose child it is.
    ///
    /// # Errors
    /// SRCH: it has ended. Else those of pidfd_open(2).
    pub(crate) fn attach_to_program(&self) -> Result<(), Errno> {
        self.program_process
            .pidfd
            .store(process::open_parent(self.program_process.number.load(Acquire))?, Release);
        Ok(())
    }

    /// Finds the program in the pager's `/proc`.
    pub(crate) fn find_program(&self) {
        let mut text = [0; 512];
        // Where a program sees no /proc, the supervisor hands its files over.
        let number = Shown::Own
            .open(b"stat")
            .ok()
            .and_then(|stat| parent_number(read_proc(stat.as_raw_fd(), &mut text)));
        self.program_process.number_in_proc.store(number.unwrap_or(0), Relaxed);
    }

    /// The program, for who follows its threads.
    pub(crate) fn followed_program(&self) -> FollowedProgram {
        let shown = match self.program_process.number_in_proc.load(Relaxed) {
            OWN => Shown::Own,
            0 => Shown::Nowhere,
            number => self.confinement.program().map_or(Shown::As(number), Shown::By),
        };
        FollowedProgram { number: self.program_process.number.load(Relaxed), shown }
    }

    /// Whether the program goes on: it is the calling pager's parent as long.
    pub(crate) fn program_is_parent(&self) -> bool {
        process::parent() == self.program_process.number.load(Relaxed)
    }

    /// The descriptor of the program's process, readable when that has ended; `None` where the
    /// pager's threads are its own.
    pub(crate) fn program_pidfd(&self) -> Option<i32> {
        Some(self.program_process.pidfd.load(Relaxed)).filter(|&pidfd| pidfd >= 0)
    }

    /// Ends the calling pager if the program has ended: its memory is to go.
    pub(crate) fn end_with_program(&self) {
        if self.program_pidfd().is_some_and(|pidfd| process::has_ended(pidfd, AT_ONCE)) {
            sys::exit_group(0);
        }
    }

    /// Ends the program, which could go on only with wrong bytes, and then the pager.
    pub(crate) fn kill_program(&self) -> ! {
        if self.is_ours() {
            sys::kill_self();
        }
        let number = self.program_process.number.load(Acquire);
        let opened = self.program_pidfd().map_or_else(
            || {
                // A pager that could not join has not opened it yet; it needs nothing else any
                // more.
                sys::close_range(0, u32::MAX);
                process::open_parent(number)
            },
            Ok,
        );
        match opened {
            Ok(pidfd) => {
                if process::kill(pidfd) == Err(Errno::PERM) {
                    // It runs as another user by now. What it is made of is ours to take.
                    self.take_code_away();
                }
                process::has_ended(pidfd, END_PATIENCE);
            }
            // It has ended.
            Err(Errno::SRCH) => {}
            Err(_) => {
                let until_ns = sys::now_ns() + END_PATIENCE.tv_sec as u64 * 1_000_000_000;
                while process::parent() == number && sys::now_ns() < until_ns {
                    process::kill_parent(number);
                    rustix::thread::sched_yield();
                }
            }
        }
        sys::exit_group(1)
    }

    /// Makes all code that lies below the pager's own memory, but the pager's own, impossible to
    /// run: the program's next instruction is its last.
    fn take_code_away(&self) {
        // SAFETY: the descriptor is in the pager threads' table and stays open.
        let file = unsafe { BorrowedFd::borrow_raw(self.descriptors.maps.load(Relaxed)) };
        let here = process::parent as *const () as usize;
        let mut buffer = [0; 4096];
        let _ = maps::read(file, &mut buffer, |mapping| {
            if mapping.kind == maps::MappingKind::File && !(mapping.start..mapping.end).contains(&here) {
                sys::forbid(mapping.start, mapping.end);
            }
        });
    }

    /// Ends the program if its pager has ended while memory is registered: nothing serves it any
    /// more, and nobody would answer the calling thread. Threads of the program.
    pub(crate) fn end_without_pager(&self) {
        let pager = self.threads.pager.load(Relaxed);
        if pager != 0
            && self.is_engaged()
            && process::wait_for(pager, process::NO_WAIT) == process::Child::Ended
        {
            sys::kill_self();
        }
    }

    /// Forgets the pagers of images that the program was before an exec; they are its children.
    pub fn forget_old_pagers(&self) {
        process::forget_ended(b"pager-");
    }

    /// Learns from the calling thread, which the C library made, where the kernel clears a word at
    /// its end. No exec is watched before.
    pub fn learn_exit_word(&self) {
        let (block, _) = processor::control_block();
        let word = process::exit_word().filter(|word| block.contains(word));
        let known = word.map(|word| word - block.start);
        self.program_process.exit_word_offset.store(known.unwrap_or(0), Relaxed);
    }

    /// Has the pager watch the exec that the calling thread of the program is about to make: its
    /// memory must go at once when the thread has left it. `None` where nothing is to be watched,
    /// or another thread's exec is; the supervisor then notices a moment later.
    pub fn begin_exec(&self) -> Option<WatchedExec> {
        if !self.is_ours() || self.life() != crate::engine::threads::Life::Running {
            return None;
        }
        let program = &self.program_process;
        let offset = Some(program.exit_word_offset.load(Relaxed)).filter(|&offset| offset != 0)?;
        let word = processor::control_block().0.start + offset;
        // SAFETY: it lies in the thread's control block, which no other thread takes away.
        if unsafe { AtomicU32::from_ptr(word as *mut u32) }.load(Relaxed) != sys::gettid() {
            // The thread was not made by the C library, or a child by its fork.
            return None;
        }
        program.exec.compare_exchange(NO_EXEC, EXEC_PREPARED, AcqRel, Relaxed).ok()?;
        program.exec_word.store(sys::gettid(), Relaxed);
        program.exec.store(EXEC_BEGINS, Release);
        // SAFETY: the word is the engine's, which is never unmapped.
        unsafe { process::watch_exit(&raw const program.exec_word) };
        self.wake_evictor();
        Some(WatchedExec { word })
    }

    /// Ends the watch of an exec that failed.
    pub fn exec_failed(&self, watched: WatchedExec) {
        // SAFETY: the word is the one that this thread had before.
        unsafe { process::watch_exit(watched.word as *const AtomicU32) };
        self.program_process.exec.store(NO_EXEC, Release);
        futex::wake(&self.program_process.exec_word, Sharing::Shared);
    }

    /// Ends the calling pager when the program has made the exec that it was about to make. Waits
    /// for that, or for its failure, for a moment. Evictor.
    pub(crate) fn end_after_exec(&self) {
        let program = &self.program_process;
        while program.exec.load(Acquire) == EXEC_BEGINS {
            let word = program.exec_word.load(Acquire);
            if word == 0 {
                // The word is stored before the state that was seen, so the kernel has cleared it.
                sys::exit_group(0);
            }
            let before = sys::now_ns();
            futex::wait(&program.exec_word, word, EXEC_WAIT_NS, Sharing::Shared);
            if sys::now_ns() - before >= EXEC_WAIT_NS {
                // The exec takes its time, and other threads may go on meanwhile.
                return;
            }
        }
    }
}

/// How long the evictor waits for an exec before it does its work again.
const EXEC_WAIT_NS: u64 = 2_000_000;

//! The system calls that a confined thread of the pager may make, by a seccomp filter.
//!
//! The pager may still have a user id that the program gave up, and whoever can write the program's
//! memory can run what he likes in the pager. The list therefore has nothing that makes use of a
//! user id: no file is made or written by its name, nothing is connected, run, traced or signalled
//! but the program itself. Files are opened for reading only, and [`super::landlock`] says which.
//!
//! Sources: seccomp(2), linux/filter.h.

use crate::kernel::{pagemap, sys};
use linux_raw_sys::general as raw;
use linux_raw_sys::ptrace as bpf;
use linux_raw_sys::{net, prctl};
use rustix::io::Errno;

/// When a system call on the list is allowed.
#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    /// The lower half of this argument has, under one of these masks, this value. The kernel takes
    /// an `int` or 32 bits of flags there.
    Argument(u8, &'static [(u32, u32)]),
    /// Each of these arguments has this value.
    Arguments(&'static [(u8, u32)]),
    /// This argument is the number of the pager's own process.
    Itself(u8),
}

/// Whether a confined thread opens files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// For reading, where Landlock allows it.
    ForReading,
    /// All that it reads is open.
    Never,
}

/// The type in an ioctl's request.
const TYPE: u32 = 0xFF00;

/// Any request to a userfaultfd.
const USERFAULTFD: u32 = 0xAA00;

/// Every system call of a confined thread.
const LIST: &[(u32, When)] = &[
    (raw::__NR_ioctl, When::Argument(1, &[(TYPE, USERFAULTFD), (u32::MAX, pagemap::SCAN)])),
    (raw::__NR_read, When::Always),
    (raw::__NR_ppoll, When::Always),
    (raw::__NR_futex, When::Always),
    (raw::__NR_madvise, When::Always),
    (raw::__NR_pread64, When::Always),
    (raw::__NR_pwritev, When::Always),
    (raw::__NR_clock_gettime, When::Always),
    (raw::__NR_sched_yield, When::Always),
    (raw::__NR_getcpu, When::Always),
    (raw::__NR_getrusage, When::Always),
    (raw::__NR_process_vm_readv, When::Itself(0)),
    (raw::__NR_io_uring_enter, When::Always),
    (raw::__NR_sendmsg, When::Always),
    (raw::__NR_recvmsg, When::Always),
    (raw::__NR_recvfrom, When::Always),
    // A further link to a network device: one end goes to the supervisor. Such a socket sends to
    // its other end only, whatever address a message has.
    (raw::__NR_socketpair, When::Arguments(&[(0, net::AF_UNIX), (1, net::SOCK_SEQPACKET | raw::O_CLOEXEC)])),
    (raw::__NR_lseek, When::Always),
    (raw::__NR_close, When::Always),
    (raw::__NR_close_range, When::Always),
    (raw::__NR_openat, When::Argument(2, &[(!raw::O_LARGEFILE, raw::O_RDONLY | raw::O_CLOEXEC)])),
    // Both see the calling thread only.
    (raw::__NR_sched_getaffinity, When::Argument(0, &[(u32::MAX, 0)])),
    (raw::__NR_sched_setaffinity, When::Argument(0, &[(u32::MAX, 0)])),
    (raw::__NR_mmap, When::Argument(2, &[(raw::PROT_EXEC, 0)])),
    (raw::__NR_mprotect, When::Argument(2, &[(raw::PROT_EXEC, 0)])),
    (raw::__NR_munmap, When::Always),
    (raw::__NR_mlock, When::Always),
    (raw::__NR_munlock, When::Always),
    (raw::__NR_nanosleep, When::Always),
    (raw::__NR_clock_nanosleep, When::Always),
    (raw::__NR_restart_syscall, When::Always),
    (raw::__NR_timerfd_create, When::Always),
    (raw::__NR_timerfd_settime, When::Always),
    (raw::__NR_getrandom, When::Always),
    (raw::__NR_gettid, When::Always),
    (raw::__NR_getpid, When::Always),
    (raw::__NR_getppid, When::Always),
    (raw::__NR_exit, When::Always),
    (raw::__NR_exit_group, When::Always),
    // It has the descriptor of one process, the program's.
    (raw::__NR_pidfd_send_signal, When::Argument(1, &[(u32::MAX, raw::SIGKILL)])),
    (raw::__NR_kill, When::Itself(0)),
];

/// Whatever is not on the list fails with EPERM.
const REFUSED: u32 = bpf::SECCOMP_RET_ERRNO | 1;

/// Offsets in `struct seccomp_data`: the number of the call, the architecture, six arguments of
/// eight bytes, lower half first.
const CALL: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const OURS: u32 = bpf::AUDIT_ARCH_X86_64;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = bpf::AUDIT_ARCH_AARCH64;

/// More than the list needs. A jump is shorter.
const LENGTH_MAX: usize = 256;
/// So many calls are compared one after the other.
const SEARCHED_IN_TURN: usize = 3;

/// A filter: a program for the kernel, which decides about one call.
struct Program {
    instructions: [bpf::sock_filter; LENGTH_MAX],
    length: usize,
}

impl Program {
    /// The filter of the process with the number `own`.
    fn of(own: u32, opening: Opening) -> Self {
        let nothing = bpf::sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
        let mut program = Program { instructions: [nothing; LENGTH_MAX], length: 0 };
        program.load(ARCHITECTURE);
        // Numbers mean other calls in another one.
        program.skip_if_equal(OURS);
        program.decide(REFUSED);
        program.load(CALL);
        let mut list = [LIST[0]; LIST.len()];
        list.copy_from_slice(LIST);
        list.sort_unstable_by_key(|&(call, _)| call);
        program.search(&list, own, opening);
        program
    }

    /// Finds the call in a part of the list, which is sorted, by halves: the kernel tries the
    /// filter with every number that it knows before it takes it.
    fn search(&mut self, list: &[(u32, When)], own: u32, opening: Opening) {
        if list.len() > SEARCHED_IN_TURN {
            let (below, from) = list.split_at(list.len() / 2);
            self.push(bpf::BPF_JMP | bpf::BPF_JGE | bpf::BPF_K, from[0].0);
            let branch = self.length;
            self.search(below, own, opening);
            self.instructions[branch - 1].jt = (self.length - branch) as u8;
            return self.search(from, own, opening);
        }
        for &(call, when) in list {
            if call != raw::__NR_openat || opening == Opening::ForReading {
                let not_this = self.jump_unless_equal(call);
                self.decide_when(when, own);
                self.lands_here(not_this);
            }
        }
        self.decide(REFUSED);
    }

    fn decide_when(&mut self, when: When, own: u32) {
        match when {
            When::Always => self.decide(bpf::SECCOMP_RET_ALLOW),
            When::Argument(argument, values) => {
                for &(mask, value) in values {
                    self.allow_if(argument, mask, value);
                }
                self.decide(REFUSED);
            }
            When::Arguments(values) => {
                for &(argument, value) in values {
                    self.load(ARGUMENTS + 8 * u32::from(argument));
                    self.skip_if_equal(value);
                    self.decide(REFUSED);
                }
                self.decide(bpf::SECCOMP_RET_ALLOW);
            }
            When::Itself(argument) => {
                self.allow_if(argument, u32::MAX, own);
                self.decide(REFUSED);
            }
        }
    }

    fn push(&mut self, code: u32, k: u32) {
        self.instructions[self.length] = bpf::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        self.length += 1;
    }

    fn load(&mut self, offset: u32) {
        self.push(bpf::BPF_LD | bpf::BPF_W | bpf::BPF_ABS, offset);
    }

    fn decide(&mut self, decision: u32) {
        self.push(bpf::BPF_RET | bpf::BPF_K, decision);
    }

    /// Skips the next instruction if what was loaded last is `value`.
    fn skip_if_equal(&mut self, value: u32) {
        self.push(bpf::BPF_JMP | bpf::BPF_JEQ | bpf::BPF_K, value);
        self.instructions[self.length - 1].jt = 1;
    }

    /// Jumps if what was loaded last is not `value`, to where [`Program::lands_here`] says.
    fn jump_unless_equal(&mut self, value: u32) -> usize {
        self.push(bpf::BPF_JMP | bpf::BPF_JEQ | bpf::BPF_K, value);
        self.length
    }

    fn lands_here(&mut self, jump: usize) {
        self.instructions[jump - 1].jf = (self.length - jump) as u8;
    }

    fn allow_if(&mut self, argument: u8, mask: u32, value: u32) {
        self.load(ARGUMENTS + 8 * u32::from(argument));
        self.push(bpf::BPF_ALU | bpf::BPF_AND | bpf::BPF_K, mask);
        let other = self.jump_unless_equal(value);
        self.decide(bpf::SECCOMP_RET_ALLOW);
        self.lands_here(other);
    }
}

/// Whether the calling thread has a filter already, of the program's or of whoever started it.
pub fn is_filtered() -> bool {
    // SAFETY: the call has no further arguments.
    let mode = unsafe { sys::syscall(raw::__NR_prctl, [prctl::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0]) };
    mode != Ok(0)
}

/// Whom a filter confines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    Own,
    /// All threads of the process.
    All,
}

/// Allows threads, of which the calling one has no new privileges, the calls of the list and no
/// others, for good. Cost: some 100 microseconds, most of it the kernel's compiler.
///
/// # Errors
/// seccomp(2)'s: ENOSYS, EPERM under a filter that does not allow another one, or SRCH where
/// another thread cannot be confined: no thread is then.
pub fn install(opening: Opening, threads: Threads) -> Result<(), Errno> {
    let mut program = Program::of(sys::getpid(), opening);
    let filter = bpf::sock_fprog { len: program.length as u16, filter: program.instructions.as_mut_ptr() };
    let whose = match threads {
        Threads::Own => 0,
        Threads::All => bpf::SECCOMP_FILTER_FLAG_TSYNC,
    };
    // A mitigation for speculation would slow every call down, and protect nothing: the program has
    // the same memory.
    let flags = (bpf::SECCOMP_FILTER_FLAG_SPEC_ALLOW | whose) as usize;
    let arguments = [bpf::SECCOMP_SET_MODE_FILTER as usize, flags, (&raw const filter) as usize, 0, 0, 0];
    // SAFETY: the kernel reads the program.
    match unsafe { sys::syscall(raw::__NR_seccomp, arguments) }? {
        0 => Ok(()),
        // The number of a thread that it cannot confine.
        _ => Err(Errno::SRCH),
    }
}

#[cfg(test)]
mod tests;

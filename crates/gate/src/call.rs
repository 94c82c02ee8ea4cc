//! What the slow path does before and after a call.

use crate::entry::{NUMBERS, Path, SLOW, Slot};
use crate::kernel::Errno;
use crate::slot::Frame;
use crate::{altstack, confined, hooks, inside, pieces, pins, process, rewrite, signals, slot, table};
use core::sync::atomic::Ordering::Relaxed;
use linux_raw_sys::{errno, general as raw, prctl};

/// Numbers whose calls the gate always looks at.
const LOOKED_AT: [u32; 39] = [
    raw::__NR_rt_sigaction,
    raw::__NR_rt_sigprocmask,
    raw::__NR_rt_sigreturn,
    raw::__NR_rt_sigsuspend,
    raw::__NR_pselect6,
    raw::__NR_ppoll,
    raw::__NR_epoll_pwait,
    raw::__NR_epoll_pwait2,
    raw::__NR_io_pgetevents,
    raw::__NR_clone,
    raw::__NR_clone3,
    raw::__NR_fork,
    raw::__NR_vfork,
    raw::__NR_execve,
    raw::__NR_execveat,
    raw::__NR_prctl,
    raw::__NR_mmap,
    raw::__NR_munmap,
    raw::__NR_mremap,
    raw::__NR_mprotect,
    raw::__NR_brk,
    raw::__NR_madvise,
    raw::__NR_pkey_mprotect,
    raw::__NR_remap_file_pages,
    raw::__NR_shmat,
    raw::__NR_shmdt,
    raw::__NR_mlock,
    raw::__NR_mlock2,
    raw::__NR_munlock,
    raw::__NR_mlockall,
    raw::__NR_munlockall,
    raw::__NR_process_madvise,
    raw::__NR_io_uring_setup,
    raw::__NR_exit,
    raw::__NR_exit_group,
    raw::__NR_rt_sigtimedwait,
    raw::__NR_sigaltstack,
    raw::__NR_seccomp,
    raw::__NR_rseq,
];

/// Chooses the calls that take the slow path. To be called before the first thread is armed.
pub(crate) fn choose_slow_calls() {
    for number in LOOKED_AT {
        if let Some(slow) = SLOW.get(number as usize) {
            slow.store(1, Relaxed);
        }
    }
    if hooks::KERNEL_WRITES.get().is_some() {
        for number in [raw::__NR_set_tid_address, raw::__NR_set_robust_list] {
            SLOW[number as usize].store(1, Relaxed);
        }
    }
    if hooks::MANAGED.get().is_some() {
        for (number, slow) in SLOW.iter().enumerate() {
            if table::operands(number as u32).is_none_or(|operands| !operands.is_empty()) {
                slow.store(1, Relaxed);
            }
        }
    }
    const { assert!(NUMBERS > raw::__NR_futex_requeue as usize) };
}

/// Decides how a call goes on, and prepares its arguments. Inside a program a thread may be
/// cancelled here (pthread_cancel), which unwinds: nothing on this path needs to be dropped.
pub(crate) extern "C-unwind" fn before(frame: &mut Frame) -> Path {
    frame.is_masked = 0;
    frame.is_made = 0;
    frame.holds_text = 0;
    if slot::index_of(frame).is_none() && !inside::is_on() {
        slot::none_was_free(frame);
    }
    frame.hold = pins::Hold::Nothing;
    if inside::is_on() && pins::nothing_is_managed() {
        return Path::Ordinary;
    }
    if let Some(word) = pieces::make(frame) {
        frame.call[0] = word;
        frame.is_made = 1;
        return Path::Answered;
    }
    pins::hold(frame);
    if inside::is_on() {
        return Path::Ordinary;
    }
    // The kernel takes a number and `int` arguments as 32 bits.
    match frame.saved[0] as u32 {
        raw::__NR_rt_sigreturn => signals::before_return(frame),
        raw::__NR_rt_sigaction => signals::before_action(frame),
        raw::__NR_rt_sigprocmask => signals::before_mask(frame),
        raw::__NR_rt_sigsuspend => signals::before_wait(frame, 1),
        raw::__NR_ppoll => signals::before_wait(frame, 4),
        raw::__NR_epoll_pwait | raw::__NR_epoll_pwait2 => signals::before_wait(frame, 5),
        raw::__NR_pselect6 | raw::__NR_io_pgetevents => signals::before_nested_wait(frame),
        raw::__NR_clone | raw::__NR_clone3 | raw::__NR_fork | raw::__NR_vfork => process::before_clone(frame),
        raw::__NR_execve | raw::__NR_execveat => process::before_exec(frame),
        raw::__NR_prctl => before_prctl(frame),
        raw::__NR_seccomp => before_confinement(frame),
        raw::__NR_sigaltstack => altstack::before_altstack(frame),
        // The kernel would write to the area whenever it schedules the thread, and use the buffers
        // of requests after the call.
        raw::__NR_rseq | raw::__NR_io_setup if hooks::MANAGED.get().is_some() => {
            answer(frame, Err(Errno(errno::ENOSYS as u16)))
        }
        raw::__NR_set_tid_address => told_of(frame, size_of::<u32>() as u64),
        raw::__NR_set_robust_list | raw::__NR_rseq => told_of(frame, frame.saved[2]),
        raw::__NR_mmap
        | raw::__NR_munmap
        | raw::__NR_mremap
        | raw::__NR_mprotect
        | raw::__NR_brk
        | raw::__NR_madvise
        | raw::__NR_pkey_mprotect
        | raw::__NR_remap_file_pages
        | raw::__NR_shmat
        | raw::__NR_shmdt
        | raw::__NR_mlock
        | raw::__NR_mlock2
        | raw::__NR_munlock
        | raw::__NR_mlockall
        | raw::__NR_munlockall
        | raw::__NR_process_madvise
        | raw::__NR_io_uring_setup => before_mapping(frame),
        raw::__NR_exit => before_end(frame),
        raw::__NR_exit_group => {
            if let Some(hook) = hooks::LEAVING.get() {
                hook();
            }
            before_end(frame)
        }
        _ => Path::Ordinary,
    }
}

/// A call that names memory which the kernel will write later.
fn told_of(frame: &Frame, bytes: u64) -> Path {
    hooks::kernel_writes(frame.saved[1], bytes);
    Path::Ordinary
}

/// The thread, or the process, does not come back from the kernel.
fn before_end(frame: &mut Frame) -> Path {
    pins::release(frame);
    process::thread_ends();
    Path::End
}

/// Completes a call that went to the kernel; its result is in `call[0]`.
pub(crate) extern "C-unwind" fn after(frame: &mut Frame) -> Slot {
    frame.is_made = 1;
    if inside::is_on() {
        pins::release(frame);
        return Slot::Free;
    }
    if !process::is_child(frame) {
        pins::release(frame);
    }
    match frame.saved[0] as u32 {
        raw::__NR_rt_sigaction => signals::after_action(frame),
        raw::__NR_clone | raw::__NR_clone3 | raw::__NR_fork | raw::__NR_vfork => {
            return process::after_clone(frame);
        }
        raw::__NR_execve | raw::__NR_execveat => process::after_exec(frame),
        _ if frame.holds_text != 0 => end_of_text(frame),
        raw::__NR_prctl | raw::__NR_seccomp => after_confinement(frame),
        _ => {}
    }
    Slot::Free
}

/// A dispatch of the program's own cannot stand beside the gate's: one thread has one.
fn before_prctl(frame: &mut Frame) -> Path {
    match frame.saved[1] as u32 {
        prctl::PR_SET_SYSCALL_USER_DISPATCH => {
            hooks::report(hooks::Incident::OwnDispatch, frame.saved[0]);
            answer(frame, Err(Errno(errno::EBUSY as u16)))
        }
        _ => before_confinement(frame),
    }
}

/// Whether the call puts a filter before all further calls of the thread.
fn confines(frame: &Frame) -> bool {
    const SET_MODE_FILTER: u32 = 1;
    const STRICT: u64 = 1;
    // Without a filter the call is a question, which the kernel answers with EFAULT.
    match frame.saved[0] as u32 {
        raw::__NR_prctl => {
            frame.saved[1] as u32 == prctl::PR_SET_SECCOMP
                && (frame.saved[2] == STRICT || frame.saved[3] != 0)
        }
        raw::__NR_seccomp => {
            frame.saved[1] as u32 == 0 || frame.saved[1] as u32 == SET_MODE_FILTER && frame.saved[3] != 0
        }
        _ => false,
    }
}

fn before_confinement(frame: &mut Frame) -> Path {
    if confines(frame) {
        // While the pager brings memory back, new threads are armed as before.
        hooks::report(hooks::Incident::Confined, frame.saved[0]);
        confined::begin();
    }
    Path::Ordinary
}

fn after_confinement(frame: &Frame) {
    if confines(frame) && crate::kernel::outcome(frame.call[0]).is_err() {
        confined::refused();
        if !confined::is_confined() {
            hooks::report(hooks::Incident::NotConfined, frame.saved[0]);
        }
    }
}

fn before_mapping(frame: &mut Frame) -> Path {
    if replaces_text(frame) {
        rewrite::calls_begin();
        frame.holds_text = 1;
    }
    let Some(hook) = hooks::MAPPING.get() else { return Path::Ordinary };
    let [number, arguments @ ..] = frame.saved;
    // SAFETY: the arguments are the program's, as the kernel would get them.
    frame.call[0] = unsafe { hook(number as u32 as u64, &arguments) };
    frame.is_made = 1;
    abandoned(frame);
    Path::Answered
}

/// Ends what a call has begun that will not come to its end.
pub(crate) fn abandoned(frame: &mut Frame) {
    end_of_text(frame);
    pins::release(frame);
}

fn end_of_text(frame: &mut Frame) {
    if core::mem::take(&mut frame.holds_text) != 0 {
        rewrite::calls_end();
    }
}

/// Of shmat(2): what is mapped there is replaced.
const SHM_REMAP: u32 = 0o40000;

/// Whether the call may take text away, or put other text in its place.
fn replaces_text(frame: &Frame) -> bool {
    match frame.saved[0] as u32 {
        raw::__NR_munmap | raw::__NR_mremap | raw::__NR_shmdt | raw::__NR_remap_file_pages => true,
        raw::__NR_mmap => frame.saved[4] & raw::MAP_FIXED as u64 != 0,
        raw::__NR_shmat => frame.saved[3] as u32 & SHM_REMAP != 0,
        _ => false,
    }
}

/// Answers a call in the kernel's place.
pub(crate) fn answer(frame: &mut Frame, result: Result<u64, Errno>) -> Path {
    frame.call[0] = result.unwrap_or_else(Errno::word);
    frame.is_made = 1;
    pins::release(frame);
    Path::Answered
}

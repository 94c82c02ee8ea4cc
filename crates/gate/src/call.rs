//! What the slow path does before and after a call.

use crate::entry::{Frame, NUMBERS, Path, SLOW};
use crate::kernel::Errno;
use crate::{hooks, pins, process, rewrite, signals, table};
use core::sync::atomic::Ordering::Relaxed;
use linux_raw_sys::{errno, general as raw, prctl};

/// Numbers whose calls the gate always looks at.
const LOOKED_AT: [u32; 24] = [
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
    raw::__NR_exit_group,
    raw::__NR_rt_sigtimedwait,
];

/// Chooses the calls that take the slow path. To be called before the first thread is armed.
pub(crate) fn choose_slow_calls() {
    for number in LOOKED_AT {
        if let Some(slow) = SLOW.get(number as usize) {
            slow.store(1, Relaxed);
        }
    }
    if hooks::MANAGED.get().is_some() {
        for (number, slow) in SLOW.iter().enumerate() {
            if table::operands(number as u64).is_none_or(|operands| !operands.is_empty()) {
                slow.store(1, Relaxed);
            }
        }
    }
    const { assert!(NUMBERS > raw::__NR_futex_requeue as usize) };
}

/// Decides how a call goes on, and prepares its arguments.
pub(crate) extern "C" fn before(frame: &mut Frame) -> Path {
    let number = frame.saved[0];
    pins::hold(frame);
    match number as u32 {
        _ if number >> 32 != 0 => Path::Ordinary,
        raw::__NR_rt_sigreturn => signals::before_return(frame),
        raw::__NR_rt_sigaction => signals::before_action(frame),
        raw::__NR_rt_sigprocmask if frame.saved[1] != raw::SIG_UNBLOCK as u64 => signals::strip(frame, 2),
        raw::__NR_rt_sigsuspend => signals::strip(frame, 1),
        raw::__NR_ppoll => signals::strip(frame, 4),
        raw::__NR_epoll_pwait | raw::__NR_epoll_pwait2 => signals::strip(frame, 5),
        raw::__NR_pselect6 | raw::__NR_io_pgetevents => signals::strip_nested(frame),
        raw::__NR_clone | raw::__NR_clone3 | raw::__NR_fork | raw::__NR_vfork => process::before_clone(frame),
        raw::__NR_execve | raw::__NR_execveat => process::before_exec(frame),
        raw::__NR_prctl => before_prctl(frame),
        raw::__NR_mmap
        | raw::__NR_munmap
        | raw::__NR_mremap
        | raw::__NR_mprotect
        | raw::__NR_brk
        | raw::__NR_madvise => before_mapping(frame),
        raw::__NR_exit_group => {
            if let Some(hook) = hooks::LEAVING.get() {
                hook();
            }
            Path::Ordinary
        }
        _ => Path::Ordinary,
    }
}

/// Completes a call that went to the kernel; its result is in `call[0]`.
pub(crate) extern "C" fn after(frame: &mut Frame) {
    if !process::is_child(frame) {
        pins::release(frame);
    }
    match frame.saved[0] as u32 {
        raw::__NR_rt_sigaction => signals::after_action(frame),
        raw::__NR_clone | raw::__NR_clone3 | raw::__NR_fork | raw::__NR_vfork => process::after_clone(frame),
        raw::__NR_execve | raw::__NR_execveat => process::after_exec(),
        raw::__NR_mmap | raw::__NR_munmap | raw::__NR_mremap => after_mapping(frame),
        _ => {}
    }
}

/// A dispatch of the program's own cannot stand beside the gate's: one thread has one.
fn before_prctl(frame: &mut Frame) -> Path {
    if frame.saved[1] as u32 != prctl::PR_SET_SYSCALL_USER_DISPATCH {
        return Path::Ordinary;
    }
    hooks::report(hooks::Incident::OwnDispatch, frame.saved[0]);
    answer(frame, Err(Errno(errno::EBUSY as u16)))
}

fn before_mapping(frame: &mut Frame) -> Path {
    if replaces_text(frame) {
        rewrite::calls_begin();
    }
    let Some(hook) = hooks::MAPPING.get() else { return Path::Ordinary };
    let [number, arguments @ ..] = frame.saved;
    // SAFETY: the arguments are the program's, as the kernel would get them.
    frame.call[0] = unsafe { hook(number, &arguments) };
    after_mapping(frame);
    pins::release(frame);
    Path::Answered
}

fn after_mapping(frame: &Frame) {
    if replaces_text(frame) {
        rewrite::calls_end();
    }
}

/// Whether the call may take text away, or put other text in its place.
fn replaces_text(frame: &Frame) -> bool {
    match frame.saved[0] as u32 {
        raw::__NR_munmap | raw::__NR_mremap => true,
        raw::__NR_mmap => frame.saved[4] & raw::MAP_FIXED as u64 != 0,
        _ => false,
    }
}

/// Answers a call in the kernel's place.
pub(crate) fn answer(frame: &mut Frame, result: Result<u64, Errno>) -> Path {
    frame.call[0] = result.unwrap_or_else(Errno::word);
    pins::release(frame);
    Path::Answered
}

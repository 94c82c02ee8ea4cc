//! exec and posix_spawn, in all their forms: whatever environment a program gives its children,
//! they stay in the group, and an LD_PRELOAD of the user's is kept.
//!
//! All of it may run in a child made by vfork, in the parent's memory, or in a signal handler, so
//! nothing is allocated (`scratch`).

use crate::environment::{Strings, count, extended};
use crate::libc;
use crate::next;
use crate::scratch::NoMemory;
use crate::start::engine;
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use folioswap_pager::kernel::sys;
use linux_raw_sys::errno::ENOSYS;
use linux_raw_sys::general as raw;

/// Reports the failure of a posix_spawn.
fn spawn_failed(errno: i32) -> c_int {
    errno
}

/// Makes an exec of the calling process, which returns only if it fails. The pager learns of it
/// beforehand, since its memory is to go with the program's.
fn watched(exec: impl FnOnce() -> c_int) -> c_int {
    let watch = engine().and_then(|engine| Some((engine, engine.begin_exec()?)));
    let result = exec();
    if let Some((engine, watch)) = watch {
        engine.exec_failed(watch);
    }
    result
}

/// Starts another process: nothing changes for the calling one.
fn unwatched(spawn: impl FnOnce() -> c_int) -> c_int {
    spawn()
}

/// Functions whose last argument is an environment. The C library's own function is called, by
/// `$by`, with an environment that keeps the new image in the group. A function that this C library
/// lacks (pidfd_spawn is young) fails like a system call that the kernel lacks.
macro_rules! with_environment {
    ($by:path, $failed:path: $($name:ident($($argument:ident: $type:ty),*))*) => {$(
        #[doc = concat!(stringify!($name), ", with the environment extended.\n\n# Safety\nAs ", stringify!($name), ".")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* environment: Strings) -> c_int {
            let Some(function) = next!(try $name: fn($($type,)* Strings) -> c_int) else {
                return $failed(ENOSYS as i32);
            };
            // SAFETY: the arguments are the caller's; the environment is valid during the call.
            let result = unsafe { extended(environment, &mut |environment| $by(|| function($($argument,)* environment))) };
            result.unwrap_or_else(|NoMemory| $failed(NoMemory::ERRNO))
        }
    )*};
}

with_environment! { watched, libc::failed:
    execve(path: *const c_char, arguments: Strings)
    execvpe(file: *const c_char, arguments: Strings)
    fexecve(descriptor: c_int, arguments: Strings)
}

with_environment! { unwatched, spawn_failed:
    posix_spawn(pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
    posix_spawnp(pid: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
    pidfd_spawn(pidfd: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
    pidfd_spawnp(pidfd: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
}

/// execveat(2), by the system call itself, because older C libraries have no function of this name.
///
/// # Safety
/// As execveat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let mut call = |environment: Strings| {
        let words =
            [directory as usize, path as usize, arguments as usize, environment as usize, flags as usize, 0];
        // SAFETY: by the caller's contract.
        watched(|| match unsafe { sys::syscall(raw::__NR_execveat, words) } {
            Ok(_) => 0,
            Err(errno) => libc::failed(errno.raw_os_error()),
        })
    };
    // SAFETY: by the caller's contract.
    unsafe { extended(environment, &mut call) }.unwrap_or_else(|NoMemory| libc::failed(NoMemory::ERRNO))
}

/// execv(3).
///
/// # Safety
/// As execv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { execve(path, arguments, libc::environ) }
}

/// execvp(3).
///
/// # Safety
/// As execvp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { execvpe(file, arguments, libc::environ) }
}

/// execle with its arguments as an array; the environment stands behind the null.
///
/// # Safety
/// As execle.
unsafe extern "C" fn execle_array(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: by execle's contract the argument after the null exists, and is the environment.
    unsafe { execve(path, arguments, (*arguments.add(count(arguments) + 1)).cast()) }
}

/// As [`execv`], under a name that no other library can interpose.
///
/// # Safety
/// As execl.
unsafe extern "C" fn execl_array(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: by contract.
    unsafe { execv(path, arguments) }
}

/// As [`execvp`].
///
/// # Safety
/// As execlp.
unsafe extern "C" fn execlp_array(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: by contract.
    unsafe { execvp(file, arguments) }
}

/// Functions of one argument and a list. The list's first five words come in registers; the others
/// lie on the stack above the return address. When the registers are pushed in place of the return
/// address, the list is one array of any length, which is passed on without a copy. The words that
/// are overwritten are the callee's own.
///
/// Stack, from the CFA (the stack pointer before the call) down: five words of the list, the return
/// address; that is 48 bytes below a multiple of 16, so the call is aligned. `ret` takes the
/// address that was pushed by the call, as a shadow stack demands.
macro_rules! variadic {
    ($($name:ident => $array:ident)*) => {$(
        #[doc = concat!(stringify!($name), "(3): more arguments follow, up to a null.\n\n# Safety\nAs ", stringify!($name), ".")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(first: *const c_char, argument: *const c_char) -> c_int {
            naked_asm!(
                ".cfi_startproc",
                "pop rax",
                ".cfi_def_cfa_offset 0",
                ".cfi_register rip, rax",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "mov rsi, rsp",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_offset rip, -48",
                "call {array}",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_register rip, rcx",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_offset rip, -8",
                "ret",
                ".cfi_endproc",
                array = sym $array,
            )
        }
    )*};
}

variadic! {
    execl => execl_array
    execle => execle_array
    execlp => execlp_array
}

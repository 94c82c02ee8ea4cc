//! exec and posix_spawn, in all their forms: whatever environment a program gives its children,
//! they stay in the group, and an LD_PRELOAD of the user's is kept.
//!
//! All of it may run in a child made by vfork, in the parent's memory, or in a signal handler, so
//! nothing is allocated (`scratch`).

use crate::environment::{Strings, count, extended, find};
use crate::libc;
use crate::next;
use crate::program_call;
use crate::scratch::NoMemory;
use crate::start::engine;
use crate::variadic::variadic;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use linux_raw_sys::errno::ENOSYS;
use linux_raw_sys::general as raw;

/// Reports the failure of a posix_spawn.
fn spawn_failed(errno: i32) -> c_int {
    errno
}

/// What an exec names as its file.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is no gate"))]
pub enum File<'a> {
    /// A name, which is looked for in these directories where it has no slash.
    Searched(&'a CStr, &'a [u8]),
    /// As execveat(2) has it.
    At {
        /// A directory's descriptor.
        directory: usize,
        /// The path in it.
        path: *const c_char,
        /// The flags of the call.
        flags: u32,
    },
}

impl File<'_> {
    /// The file of this path, from the working directory on.
    pub const fn path(path: *const c_char) -> Self {
        File::At { directory: raw::AT_FDCWD as usize, path, flags: 0 }
    }
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

/// Whether the C library's function comes to [`by_number`] at its end, which does all that is to be
/// done.
fn is_seen_at_end() -> bool {
    #[cfg(target_arch = "x86_64")]
    return crate::exec_entry::stands();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The exec of a file that may not be able to preload the agent: the supervisor is asked to put it
/// there, unless the gate sees the call and asks itself.
fn followed(file: File<'_>, environment: Strings, exec: impl FnOnce() -> c_int) -> c_int {
    #[cfg(target_arch = "x86_64")]
    if folioswap_gate::dispatch::ARMED.load(core::sync::atomic::Ordering::Relaxed) == 0 {
        let found = crate::boarding::before_exec_of(file, environment);
        let result = watched(exec);
        crate::boarding::exec_failed(found);
        return result;
    }
    let _ = (file, environment);
    watched(exec)
}

fn of_path(path: &*const c_char, environment: Strings, exec: impl FnOnce() -> c_int) -> c_int {
    if is_seen_at_end() {
        return exec();
    }
    followed(File::path(*path), environment, exec)
}

fn of_searched(name: &*const c_char, environment: Strings, exec: impl FnOnce() -> c_int) -> c_int {
    if is_seen_at_end() {
        return exec();
    }
    // SAFETY: the name is a string, and the environment the C library's.
    let search = unsafe { find(libc::environ, b"PATH") };
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(*name) };
    followed(File::Searched(name, search.unwrap_or(b"/bin:/usr/bin")), environment, exec)
}

fn of_descriptor(descriptor: &c_int, environment: Strings, exec: impl FnOnce() -> c_int) -> c_int {
    let flags = raw::AT_EMPTY_PATH;
    followed(File::At { directory: *descriptor as usize, path: c"".as_ptr(), flags }, environment, exec)
}

/// Starts another process: nothing changes for the calling one.
fn unwatched<T>(_pid: &T, _environment: Strings, spawn: impl FnOnce() -> c_int) -> c_int {
    spawn()
}

/// Functions whose last argument is an environment. The C library's own function is called, by
/// `$by`, with an environment that keeps the new image in the group. A function that this C library
/// lacks (pidfd_spawn is young) fails like a system call that the kernel lacks.
macro_rules! with_environment {
    ($how:tt, $by:path, $failed:path: $($name:ident($first:ident: $of:ty $(, $argument:ident: $type:ty)*))*) => {$(
        #[doc = concat!(stringify!($name), ", with the environment extended.\n\n# Safety\nAs ", stringify!($name), ".")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($first: $of, $($argument: $type,)* environment: Strings) -> c_int {
            let Some(function) = next!($how $name: fn($of, $($type,)* Strings) -> c_int) else {
                return $failed(ENOSYS as i32);
            };
            // SAFETY: the arguments are the caller's; the environment is valid during the call.
            let result = unsafe { extended(environment, &mut |environment| {
                $by(&$first, environment, || function($first, $($argument,)* environment))
            }) };
            result.unwrap_or_else(|NoMemory| $failed(NoMemory::ERRNO))
        }
    )*};
}

with_environment! { try, of_path, libc::failed:
    execve(path: *const c_char, arguments: Strings)
}

with_environment! { try, of_searched, libc::failed:
    execvpe(file: *const c_char, arguments: Strings)
}

with_environment! { try, of_descriptor, libc::failed:
    fexecve(descriptor: c_int, arguments: Strings)
}

with_environment! { try, unwatched, spawn_failed:
    posix_spawn(pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
    posix_spawnp(pid: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
}

with_environment! { lazily, unwatched, spawn_failed:
    pidfd_spawn(pidfd: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
    pidfd_spawnp(pidfd: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings)
}

/// execve(2), by the system call itself.
///
/// # Safety
/// As execve.
#[cfg(target_arch = "x86_64")]
pub unsafe fn by_number(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let words = |environment: Strings| [path as usize, arguments as usize, environment as usize, 0, 0, 0];
    // SAFETY: by the caller's contract.
    unsafe { by_system_call(raw::__NR_execve, File::path(path), environment, words) }
}

/// An exec by this system call; `words` are its arguments with the environment that it is to have.
///
/// # Safety
/// As execveat.
unsafe fn by_system_call(
    number: u32,
    file: File<'_>,
    environment: Strings,
    words: impl Fn(Strings) -> [usize; 6],
) -> c_int {
    let mut call = |environment: Strings| {
        // SAFETY: by the caller's contract.
        followed(file, environment, || match unsafe { program_call::make(number, words(environment)) } {
            Ok(_) => 0,
            Err(errno) => libc::failed(errno),
        })
    };
    // SAFETY: by the caller's contract.
    unsafe { extended(environment, &mut call) }.unwrap_or_else(|NoMemory| libc::failed(NoMemory::ERRNO))
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
    let file = File::At { directory: directory as usize, path, flags: flags as u32 };
    let words = |environment: Strings| {
        [directory as usize, path as usize, arguments as usize, environment as usize, flags as usize, 0]
    };
    // SAFETY: by the caller's contract.
    unsafe { by_system_call(raw::__NR_execveat, file, environment, words) }
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

variadic! {
    execl => execl_array
    execle => execle_array
    execlp => execlp_array
}

//! exec and posix_spawn: whatever environment a program gives its children, they stay in the group, and an LD_PRELOAD of
//! the user's is kept.
//!
//! All of it may run in a child made by vfork, in the parent's memory, or in a signal handler: no allocation; the new
//! array lives on the stack, and in a mapping only if it is very large.

use crate::environment::{GROUP, PRELOAD, count, position};
use crate::libc;
use crate::next;
use core::ffi::{c_char, c_int, c_void};
use folioswap_pager::sys;
use linux_raw_sys::general as raw;

type Strings = *const *const c_char;

/// Strings that fit on the stack.
const STACK_STRINGS: usize = 1024;
const VALUE_MAX: usize = 4096;

/// Our own values, remembered from the environment that the process was started with.
struct Own {
    agent: &'static [u8],
    group: &'static [u8],
}

fn own() -> Option<Own> {
    let engine = crate::start::engine()?;
    let agent = engine.agent_path();
    (!agent.is_empty()).then(|| Own { agent, group: engine.group_name() })
}

/// An environment with our two variables, built over the caller's.
struct Environment {
    strings: [*const c_char; STACK_STRINGS],
    preload: [u8; VALUE_MAX],
    group: [u8; 160],
    large: *mut *const c_char,
}

impl Environment {
    const fn new() -> Self {
        Environment {
            strings: [core::ptr::null(); STACK_STRINGS],
            preload: [0; VALUE_MAX],
            group: [0; 160],
            large: core::ptr::null_mut(),
        }
    }

    /// `environment` itself if it has our variables, else a copy that has them, valid as long as `self`.
    ///
    /// # Safety
    /// `environment` must be null or a null-terminated array of terminated strings.
    unsafe fn extend(&mut self, environment: Strings) -> Strings {
        let Some(own) = own() else { return environment };
        // SAFETY: by contract, for the whole function.
        let preload = unsafe { position(environment, PRELOAD) };
        // SAFETY: by contract.
        let group = unsafe { position(environment, GROUP) };
        let has_agent = preload.is_some_and(|(_, value)| {
            value.split(|&byte| byte == b':' || byte == b' ').any(|path| path == own.agent)
        });
        if has_agent && group.is_some_and(|(_, value)| value == own.group) {
            return environment;
        }
        // SAFETY: by contract.
        let length = unsafe { count(environment) };
        let strings: &mut [*const c_char] = if length + 3 <= STACK_STRINGS {
            &mut self.strings
        } else {
            let bytes = (length + 3) * size_of::<*const c_char>();
            let arguments = [0, bytes, 3, (raw::MAP_PRIVATE | raw::MAP_ANONYMOUS) as usize, usize::MAX, 0];
            // SAFETY: a new mapping, which the exec throws away.
            let Ok(place) = (unsafe { sys::syscall(raw::__NR_mmap, arguments) }) else { return environment };
            self.large = place as *mut *const c_char;
            // SAFETY: the mapping is that large.
            unsafe { core::slice::from_raw_parts_mut(self.large, length + 3) }
        };
        for (index, string) in strings[..length].iter_mut().enumerate() {
            // SAFETY: within the array.
            *string = unsafe { *environment.add(index) };
        }
        let mut end = length;
        let mut place = |at: Option<(usize, &[u8])>, value: *const c_char| match at {
            Some((index, _)) => strings[index] = value,
            None => {
                strings[end] = value;
                end += 1;
            }
        };
        if !has_agent {
            let theirs = preload.map_or(&b""[..], |(_, value)| value);
            let separator: &[u8] = if theirs.is_empty() { b"" } else { b":" };
            if join(&mut self.preload, &[PRELOAD, b"=", own.agent, separator, theirs]) {
                place(preload, self.preload.as_ptr().cast());
            }
        }
        if join(&mut self.group, &[GROUP, b"=", own.group]) {
            place(group, self.group.as_ptr().cast());
        }
        strings[end] = core::ptr::null();
        strings.as_ptr()
    }
}

/// Writes the parts and a terminator; false if they do not fit.
fn join(into: &mut [u8], parts: &[&[u8]]) -> bool {
    let mut length = 0;
    for part in parts {
        if length + part.len() + 1 > into.len() {
            return false;
        }
        into[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    into[length] = 0;
    true
}

/// execve(2) with the environment extended.
///
/// # Safety
/// As execve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let mut extended = Environment::new();
    // SAFETY: the caller's.
    unsafe {
        next!(execve: fn(*const c_char, Strings, Strings) -> c_int)(
            path,
            arguments,
            extended.extend(environment),
        )
    }
}

/// execv(3).
///
/// # Safety
/// As execv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execve(path, arguments, libc::environ) }
}

/// execvp(3).
///
/// # Safety
/// As execvp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execvpe(file, arguments, libc::environ) }
}

/// execvpe(3).
///
/// # Safety
/// As execvpe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let mut extended = Environment::new();
    // SAFETY: the caller's.
    unsafe {
        next!(execvpe: fn(*const c_char, Strings, Strings) -> c_int)(
            file,
            arguments,
            extended.extend(environment),
        )
    }
}

/// fexecve(3).
///
/// # Safety
/// As fexecve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(descriptor: c_int, arguments: Strings, environment: Strings) -> c_int {
    let mut extended = Environment::new();
    // SAFETY: the caller's.
    unsafe {
        next!(fexecve: fn(c_int, Strings, Strings) -> c_int)(
            descriptor,
            arguments,
            extended.extend(environment),
        )
    }
}

/// execveat(2).
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
    let mut extended = Environment::new();
    // SAFETY: the caller's; the system call itself, since older C libraries have no function of this name.
    let result = unsafe {
        sys::syscall(
            raw::__NR_execveat,
            [
                directory as usize,
                path as usize,
                arguments as usize,
                extended.extend(environment) as usize,
                flags as usize,
                0,
            ],
        )
    };
    if let Err(errno) = result {
        // SAFETY: the calling thread's errno.
        unsafe { *libc::__errno_location() = errno.raw_os_error() };
    }
    -1
}

/// posix_spawn(3).
///
/// # Safety
/// As posix_spawn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let mut extended = Environment::new();
    // SAFETY: the caller's.
    unsafe {
        next!(posix_spawn: fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int)(
            pid,
            path,
            actions,
            attributes,
            arguments,
            extended.extend(environment),
        )
    }
}

/// posix_spawnp(3).
///
/// # Safety
/// As posix_spawnp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let mut extended = Environment::new();
    // SAFETY: the caller's.
    unsafe {
        next!(posix_spawnp: fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int)(
            pid,
            file,
            actions,
            attributes,
            arguments,
            extended.extend(environment),
        )
    }
}

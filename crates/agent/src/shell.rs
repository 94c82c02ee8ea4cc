//! system and popen: the C library starts their shell by its own posix_spawn, with the program's
//! environment unchanged.
//!
//! When that environment lacks the variables that keep the shell in the group, the command is
//! wrapped into one that exports them first and then replaces itself by a shell that gets the
//! original command. All else (signals, waiting, cancellation, streams) stays the C library's. The
//! first shell lives only for a moment, under the same process id.

use crate::environment::{GROUP, Lack, PRELOAD};
use crate::libc;
use crate::next;
use crate::scratch::{self, NoMemory, Text};
use core::ffi::{CStr, c_char, c_int, c_void};

/// The text before, between and behind the quoted values.
const EXPORT: &[u8] = b"export ";
const EXEC: &[u8] = b"; exec /bin/sh -c -- ";

/// A single quote inside single quotes.
const QUOTE: &[u8] = b"'\\''";

fn quoted_length(text: &[u8]) -> usize {
    text.iter().map(|&byte| if byte == b'\'' { QUOTE.len() } else { 1 }).sum()
}

fn push_quoted(into: &mut Text<'_>, parts: &[&[u8]]) {
    into.push(b"'");
    for byte in parts.iter().copied().flatten() {
        into.push(if *byte == b'\'' { QUOTE } else { core::slice::from_ref(byte) });
    }
    into.push(b"'");
}

/// Calls `call` with the command, wrapped if need be.
///
/// # Errors
/// There is no memory for the wrapped command; nothing was called.
///
/// # Safety
/// `command` is null or a terminated string.
unsafe fn kept(command: *const c_char, call: &mut dyn FnMut(*const c_char)) -> Result<(), NoMemory> {
    // SAFETY: the argument is the C library's environment.
    let lack = unsafe { Lack::of(libc::environ) }.filter(|_| !command.is_null());
    let Some(lack) = lack else {
        call(command);
        return Ok(());
    };
    // SAFETY: by contract, and not null.
    let text = unsafe { CStr::from_ptr(command) }.to_bytes();
    let preload = lack.preload();
    let values = preload.iter().map(|part| quoted_length(part)).sum::<usize>() + quoted_length(lack.group());
    let names = EXPORT.len() + PRELOAD.len() + GROUP.len() + b"= =".len() + EXEC.len();
    // Three values in quotes, and the terminator.
    let bytes = names + values + quoted_length(text) + 3 * b"''".len() + 1;
    scratch::with(Text::words(bytes), &mut |words| {
        let mut script = Text::new(words);
        script.push(EXPORT);
        script.push(PRELOAD);
        script.push(b"=");
        push_quoted(&mut script, &preload);
        script.push(b" ");
        script.push(GROUP);
        script.push(b"=");
        push_quoted(&mut script, &[lack.group()]);
        script.push(EXEC);
        push_quoted(&mut script, &[text]);
        call(script.end(0));
    })
}

/// system(3).
///
/// # Safety
/// As system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let function = next!(system: fn(*const c_char) -> c_int);
    let mut result = -1;
    // SAFETY: by the caller's contract.
    if unsafe { kept(command, &mut |command| result = function(command)) }.is_err() {
        libc::set_errno(NoMemory::ERRNO);
    }
    result
}

/// popen(3).
///
/// # Safety
/// As popen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    let function = next!(popen: fn(*const c_char, *const c_char) -> *mut c_void);
    let mut stream = core::ptr::null_mut();
    // SAFETY: by the caller's contract.
    if unsafe { kept(command, &mut |command| stream = function(command, mode)) }.is_err() {
        libc::set_errno(NoMemory::ERRNO);
    }
    stream
}

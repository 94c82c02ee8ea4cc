//! The C library's own execs, where no gate stands before its calls: posix_spawn(3), system(3) and
//! popen(3) call its `execve` from within, where no function of ours is asked. So the first
//! instructions of that function become a jump to ours.

use crate::environment::Strings;
use crate::exec;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use folioswap_gate::rewrite::write_text;
use folioswap_group::units::PAGE_SIZE;
use linux_raw_sys::general as raw;

/// How glibc's `execve` begins: `mov $59, %eax`.
const FIRST: [u8; 5] = [0xb8, raw::__NR_execve as u8, 0, 0, 0];
/// What follows, and becomes a jump: `syscall; cmp $-4095, %rax; jae; ret`, and the beginning of
/// what sets errno. Whatever is otherwise is left alone. The first instruction stays what it is in
/// the file, since a probe of the kernel's may stand there.
const REST: [u8; 14] = [0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 0x01, 0xc3, 0x48, 0x8b, 0x0d];
/// `endbr64`, which may stand before, and stays.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `jmp *0(%rip)`: the address follows.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

/// 1 once the C library's `execve` leads to [`execve`].
static STANDS: AtomicU32 = AtomicU32::new(0);

/// Whether every exec by a function of the C library's `execve` comes to ours at its end.
pub fn stands() -> bool {
    STANDS.load(Relaxed) != 0
}

/// Leads the C library's `execve` to ours. Where it cannot be, static programs that posix_spawn,
/// system and popen start stay unmanaged, and are named. Costs three system calls and a page.
///
/// # Safety
/// The process has one thread.
pub unsafe fn stand_before_execs() {
    let Some(function) = crate::next!(try execve: fn(*const c_char, Strings, Strings) -> c_int) else {
        return;
    };
    let start = function as *const u8;
    // SAFETY: a function of the C library has as many bytes, and they may be read.
    let has = |at: usize, bytes: &[u8]| unsafe {
        core::slice::from_raw_parts(start.wrapping_add(at), bytes.len()) == bytes
    };
    let first = if has(0, &LANDING) { LANDING.len() } else { 0 };
    let at = first + FIRST.len();
    // The kernel might write a part of what lies in two pages.
    let is_in_one_page = (start as usize + at) % PAGE_SIZE + REST.len() <= PAGE_SIZE;
    if !is_in_one_page || !has(first, &FIRST) || !has(at, &REST) {
        return;
    }
    let mut jump = [0; REST.len()];
    jump[..JUMP.len()].copy_from_slice(&JUMP);
    let ours = execve as unsafe extern "C" fn(_, _, _) -> _ as usize;
    jump[JUMP.len()..].copy_from_slice(&ours.to_ne_bytes());
    // SAFETY: the process has one thread, which is here.
    if unsafe { write_text(start as u64 + at as u64, &jump) } {
        STANDS.store(1, Relaxed);
    }
}

/// What the C library's `execve` is from now on.
///
/// # Safety
/// As execve.
unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: by contract.
    unsafe { exec::by_number(path, arguments, environment) }
}

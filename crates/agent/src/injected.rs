//! The start in a program into which the supervisor has put the agent (`processes/inject` of
//! `folioswap-supervisor`): one that is static, of musl, or Go's.
//!
//! There is no C library, or it has not begun: nothing here calls one, and no constructor has run.
//! The gate stands before all calls, which is how forks, exec and mappings are seen.

use crate::environment::{self, PRELOAD, Strings};
use crate::{gate, start};
use core::ffi::c_char;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use folioswap_group::letter::{Letter, NO_PRELOAD};
use folioswap_pager::engine::Engine;

static IS_INJECTED: AtomicBool = AtomicBool::new(false);

/// Whether the supervisor has put this code into the program, which no C library of it knows.
pub fn is_injected() -> bool {
    IS_INJECTED.load(Relaxed)
}

/// Where an injected program begins: `rsp` has the [`Letter`]. Goes on where the program itself
/// begins, with the registers that the kernel gives it.
///
/// # Safety
/// Only the supervisor leads here.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn folioswap_injected() {
    core::arch::naked_asm!(
        "mov rbx, rsp",
        "mov rdi, rsp",
        "call {begin}",
        "mov rdx, [rbx + {third}]",
        "mov rax, [rbx + {entry}]",
        "mov rsp, [rbx + {stack}]",
        // The kernel clears all others, and some programs look at none.
        "mov [rsp - 8], rax",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor esi, esi",
        "xor edi, edi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "jmp [rsp - 8]",
        begin = sym begin,
        entry = const offset_of!(Letter, entry),
        stack = const offset_of!(Letter, stack),
        third = const offset_of!(Letter, third),
    )
}

/// Joins the group, and stands before the program's calls. Where that fails, the program goes on
/// unmanaged.
extern "C" fn begin(letter: &Letter) {
    let names = (&raw const *letter).wrapping_add(1).cast::<u8>();
    // SAFETY: the supervisor has written both behind the words.
    let (group, agent) = unsafe {
        (
            core::slice::from_raw_parts(names, letter.group_bytes as usize),
            core::slice::from_raw_parts(names.add(letter.group_bytes as usize), letter.agent_bytes as usize),
        )
    };
    if letter.flags & NO_PRELOAD != 0 {
        let stack = letter.stack as *const usize;
        // SAFETY: the stack of a new program has its arguments, and then its environment.
        unsafe { keep_from_preloading(stack.add(stack.read() + 2).cast(), agent) };
    }
    IS_INJECTED.store(true, Relaxed);
    let Ok(engine) = Engine::create(group, agent) else { return };
    engine.gate_forks();
    start::begin(engine);
    if engine.forks_are_gated() {
        gate::stand_before_injected();
        start::stand_before_calls(engine);
    }
}

/// Takes the agent out of LD_PRELOAD, in place.
///
/// # Safety
/// `environment` is that of a new program, which has not begun.
unsafe fn keep_from_preloading(environment: Strings, agent: &[u8]) {
    // SAFETY: by contract.
    let Some(value) = (unsafe { environment::find(environment, PRELOAD) }) else { return };
    if environment::agent_of(value) != agent {
        return;
    }
    let rest = value.len().min(agent.len() + 1);
    let start = value.as_ptr().cast::<c_char>().cast_mut();
    // SAFETY: the string is the new program's, on its stack, and ends with a zero that is moved
    // too.
    unsafe { core::ptr::copy(start.add(rest), start, value.len() - rest + 1) };
}

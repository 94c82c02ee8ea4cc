//! Syscall User Dispatch: the kernel turns each call that is made outside of the gate into SIGSYS,
//! and the handler leads the thread into the gate.
//!
//! The call is not made inside the handler: the handler only sets the program counter, so
//! blocking, EINTR, masks, clone and signal returns are as they are without the gate.

use crate::context::{Context, R11, RAX, RCX, RIP, RSP};
use crate::kernel::{Errno, call, set_mask};
use crate::signals::{Action, SA_RESTORER, SIGSYS_BIT, kernels_action, of_sigsys};
use crate::{altstack, call as calls, delivery, entry, figures, hooks, rewrite, slot};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use linux_raw_sys::{general as raw, prctl};

/// The kernel's code of a SIGSYS that comes from the dispatch.
const FROM_DISPATCH: i32 = 2;
/// The kernel's code for a signal of its own making begins here; others sent the rest.
const SENT_BY_KERNEL: i32 = 1;
/// The architecture word of 32-bit calls.
const ARCH_I386: u32 = 0x4000_0003;
const SIG_IGN: u64 = 1;

unsafe extern "C" {
    /// The entry: no function, but where a call goes that is led here.
    pub fn folioswap_gate_begin();
}

/// Whether threads are armed: 1 once the first one is.
pub static ARMED: AtomicU32 = AtomicU32::new(0);

/// Arms the gate for the calling thread, which must be the only one of the process, and for all
/// that it will make. Costs some 140 system calls. Never undone: only exec ends it.
///
/// # Errors
/// EINVAL: the kernel has no Syscall User Dispatch (before 5.11). Nothing has changed then, except
/// that the handler of SIGSYS stays. Others: a filter forbids the calls.
pub fn arm() -> Result<(), Errno> {
    prepare()?;
    arm_thread()?;
    ARMED.store(1, Relaxed);
    Ok(())
}

/// Everything of [`arm`] but the dispatch: only rewritten sites reach the gate then.
///
/// # Errors
/// As those of [`arm`].
pub fn prepare() -> Result<(), Errno> {
    calls::choose_slow_calls();
    slot::prepare();
    of_sigsys().write(install_handler()?);
    let mut mask = 0u64;
    let unblock = SIGSYS_BIT;
    let arguments = [
        raw::SIG_UNBLOCK as u64,
        &raw const unblock as u64,
        &raw mut mask as u64,
        size_of::<u64>() as u64,
        0,
        0,
    ];
    // SAFETY: reads one word and writes one.
    unsafe { call(raw::__NR_rt_sigprocmask, arguments) }?;
    altstack::install(Some(altstack::of_kernel()));
    delivery::take_over_handlers();
    Ok(())
}

/// Installs the handler; returns the action before. The handler runs with all signals blocked, so
/// it may take locks; it asks for the alternate stack because some threads have no room elsewhere.
pub(crate) fn install_handler() -> Result<Action, Errno> {
    let flags = raw::SA_ONSTACK | raw::SA_NODEFER | raw::SA_RESTART | raw::SA_SIGINFO;
    let action: Action = [entry::address_of!(on_sigsys), flags as u64 | SA_RESTORER, entry::restorer(), !0];
    kernels_action(raw::SIGSYS, Some(&action))
}

/// The addresses from which calls are let through, where [`let_through`] has set them.
static LET_THROUGH: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Lets calls through from all of the object that the gate is a part of, so that hooks make theirs
/// as they like. `text` has the addresses of its code, the gate's included. Before [`arm`].
pub fn let_through(text: Range<u64>) {
    LET_THROUGH[0].store(text.start, Relaxed);
    LET_THROUGH[1].store(text.end, Relaxed);
}

/// The addresses from which calls are let through: at least the gate's own.
fn allowed() -> Range<u64> {
    let [start, end] = LET_THROUGH.each_ref().map(|word| word.load(Relaxed));
    if (start..end).contains(&entry::begin()) && entry::end() <= end {
        start..end
    } else {
        entry::begin()..entry::end()
    }
}

/// Turns the dispatch on in the calling thread. Threads and processes begin without it.
pub(crate) fn arm_thread() -> Result<(), Errno> {
    let allowed = allowed();
    let arguments = [
        prctl::PR_SET_SYSCALL_USER_DISPATCH as u64,
        prctl::PR_SYS_DISPATCH_ON as u64,
        allowed.start,
        allowed.end - allowed.start,
        0,
        0,
    ];
    // SAFETY: changes where calls of the thread may come from; all that the gate makes are in the
    // range.
    unsafe { call(raw::__NR_prctl, arguments) }.map(|_| ())
}

/// What the handler reads of siginfo.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    address: u64,
    number: i32,
    arch: u32,
}

extern "C" fn on_sigsys(signal: i32, info: &mut Info, context: &mut Context) {
    if info.code != FROM_DISPATCH {
        return forward(signal, info, context);
    }
    figures::TRAPPED.add();
    let registers = &mut context.registers;
    if info.arch == ARCH_I386 {
        hooks::report(hooks::Incident::Legacy, registers[RAX]);
        // The call destroys no register that could hold the return address, so the stack has it.
        registers[RSP] -= 128 + 8;
        // SAFETY: the stack of the interrupted code, below its red zone: a signal may write there.
        unsafe { (registers[RSP] as *mut u64).write_unaligned(registers[RIP]) };
        registers[RIP] = entry::legacy();
        return;
    }
    if registers[RAX] as u32 == raw::__NR_exit {
        // The thread may stand on a stack that is gone, or that others have by now.
        registers[RIP] = entry::thread_end();
        return;
    }
    registers[R11] = registers[RIP];
    registers[RCX] = match registers[RAX] as u32 {
        // Its site is not worth a trampoline: nothing comes back.
        raw::__NR_exit_group => registers[RIP],
        _ => rewrite::lead(registers[RIP]),
    };
    registers[RIP] = entry::begin();
}

/// A SIGSYS that the dispatch did not raise belongs to the program.
fn forward(signal: i32, info: &mut Info, context: &mut Context) {
    let [handler, flags, _, mask] = of_sigsys().read();
    if flags as u32 & raw::SA_RESETHAND != 0 {
        of_sigsys().write([0; 4]);
    }
    match handler {
        SIG_IGN if info.code < SENT_BY_KERNEL => {}
        0 | SIG_IGN => end_by_default(),
        _ => {
            set_mask((context.mask | mask) & !SIGSYS_BIT);
            // SAFETY: the address is the program's handler, which takes up to three arguments.
            let handler =
                unsafe { core::mem::transmute::<u64, extern "C" fn(i32, &mut Info, &mut Context)>(handler) };
            handler(signal, info, context);
            set_mask(!0);
            // The frame's mask is what the handler may have changed.
            context.mask &= !SIGSYS_BIT;
        }
    }
}

/// The default action: the process ends by SIGSYS once the handler has returned.
fn end_by_default() {
    let _ = kernels_action(raw::SIGSYS, Some(&[0; 4]));
    crate::kernel::raise(raw::SIGSYS);
}

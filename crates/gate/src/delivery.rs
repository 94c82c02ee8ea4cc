//! Signals for which the program has a handler.
//!
//! The kernel would put its frame on a stack that may be away, or on one of the gate's. So it has
//! one handler for all of them, which runs on an alternate stack of ours with all signals blocked,
//! and copies the frame to where it would have been, moved by a multiple of 64 bytes, as the state
//! of the floating point unit demands. The kernel's own frame then becomes one that leads into the
//! program's handler, with the registers and the mask that it would have had: one rt_sigreturn,
//! which every filter of calls allows. That of the handler finds the copy.

use crate::context::{self, Context, RAX, RBX, RDI, RDX, RIP, RSI, RSP};
use crate::signals::{ACTIONS, SIGSYS_BIT, delivered, guarded_now, guarding, is_guarded, kernels_action};
use crate::{altstack, entry, slot, touch};
use linux_raw_sys::{errno, general as raw};

/// Bytes of the floating point state before what the processor adds, and where its size is.
const FLOATING_BYTES: u64 = 512;
const FLOATING_MAGIC_AT: u64 = 464;
const FLOATING_MAGIC: u32 = 0x4650_5853;
const SIGINFO_BYTES: u64 = 128;
const RED_ZONE: u64 = 128;
/// The floating point state lies at a multiple of this.
const ALIGNMENT: u64 = 64;

/// Flags that the kernel clears for a handler: direction, resume, single step.
const CLEARED_FLAGS: u64 = 0x400 | 0x1_0000 | 0x100;

/// The way into a handler, as a frame without siginfo.
#[repr(C)]
pub(crate) struct Way {
    restorer: u64,
    context: Context,
}

/// Bytes of it, so that the stack stays aligned.
pub(crate) const WAY_BYTES: usize = size_of::<Way>().next_multiple_of(16);

/// Where the frame lies that the kernel has written, and where the program would have it.
enum Place {
    /// It is where the program may have it.
    Right,
    /// It ends at this address.
    Below(u64),
}

/// Copies the frame to where the program would have it; called by the entry. Returns a frame for
/// rt_sigreturn that leads into the handler: the kernel's own, or, where that stays, `way`.
pub(crate) extern "C" fn deliver(
    signal: u32,
    info: u64,
    context: &mut Context,
    frame: u64,
    way: &mut Way,
) -> u64 {
    let Some(kept) = ACTIONS.get(signal.wrapping_sub(1) as usize) else { return frame };
    if let Some(failed) = touch::failed_at(context.registers[RIP]).filter(|_| signal == raw::SIGSEGV) {
        context.registers[RIP] = failed;
        return frame;
    }
    // The kernel's frame begins with the restorer, which is ours where the program has no handler.
    // SAFETY: the kernel has written the frame.
    let is_guard = is_guarded(signal) && unsafe { (frame as *const u64).read() } == entry::restorer();
    if is_guard && let Some(none) = guarded_now() {
        // SAFETY: the kernel has written the code of the signal, as its third word.
        do_default(signal, none, unsafe { ((info + 8) as *const i32).read() });
        return frame;
    }
    let [handler, flags, _, blocked] = kept.read();
    if handler <= 1 {
        // There is none any more.
        return frame;
    }
    if is_guarded(signal) && flags & raw::SA_RESETHAND as u64 != 0 {
        let _ = kernels_action(signal, Some(&guarding(0)));
    }
    let gate_frame = frame_of(context);
    let mut mask = mask_before(context, gate_frame) | blocked;
    if flags & raw::SA_NODEFER as u64 == 0 {
        mask |= 1 << (signal - 1);
    }
    let is_ours = altstack::is_within(context.stack, frame);
    let place = place(context, frame, flags, is_ours);
    context::show(context, gate_frame);
    context.note_area(is_ours);
    let at = [context.registers[RSP], context.registers[RIP]];
    let area = if is_ours { altstack::area_of(frame) } else { 0 };
    let note = |moved, copy: &mut dyn FnMut()| match gate_frame {
        Some(gate_frame) => slot::interrupt(gate_frame, area, moved, at, copy),
        None => copy(),
    };
    let (enter, distance) = match place {
        Place::Right => {
            note(frame, &mut || ());
            way.context = *context;
            (&mut way.context, 0)
        }
        Place::Below(top) => {
            let end = floating_end(context.floating).max(info + SIGINFO_BYTES);
            let bytes = end - frame;
            let distance = top.wrapping_sub(bytes).wrapping_sub(frame) & !(ALIGNMENT - 1);
            let moved = frame.wrapping_add(distance);
            if context.floating != 0 {
                context.floating = context.floating.wrapping_add(distance);
            }
            note(moved, &mut || {
                // SAFETY: the kernel wrote the bytes at `frame`. Where the program's stack has no
                // room for them the thread ends by SIGSEGV, as where the kernel finds none.
                unsafe {
                    core::ptr::copy_nonoverlapping(frame as *const u8, moved as *mut u8, bytes as usize)
                };
            });
            (&mut *context, distance)
        }
    };
    let entered = frame.wrapping_add(distance);
    enter.registers[RIP] = handler;
    enter.registers[RSP] = entered;
    enter.registers[RDI] = signal as u64;
    enter.registers[RSI] = info.wrapping_add(distance);
    enter.registers[RDX] = entered + size_of::<u64>() as u64;
    enter.registers[RAX] = 0;
    enter.flags_register &= !CLEARED_FLAGS;
    enter.mask = mask & !SIGSYS_BIT;
    // The handler begins with a floating point unit that is as new, and the alternate stack stays.
    enter.floating = 0;
    enter.stack[1] = altstack::REFUSED;
    &raw const *enter as u64 - size_of::<u64>() as u64
}

/// Where the program's handler would have the frame. The program's view of its alternate stack goes
/// into the context.
fn place(context: &mut Context, frame: u64, flags: u64, is_ours: bool) -> Place {
    let interrupted = context.registers[RSP];
    let programs = match slot::frame_of_stack(interrupted) {
        // SAFETY: the thread was interrupted while it had this frame.
        Some(frame) => unsafe { (*frame).stack },
        None => interrupted,
    };
    let below = programs.wrapping_sub(RED_ZONE);
    if !is_ours {
        // A thread without an alternate stack of ours: the frame is on one of the program's, unless
        // the thread was on a stack of the gate's.
        return match slot::frame_of_stack(frame) {
            Some(_) => Place::Below(below),
            None => Place::Right,
        };
    }
    let kernels = context.stack;
    context.stack = altstack::shown(frame, programs);
    if altstack::is_within(kernels, programs) {
        // The program's own handler of SIGSYS was interrupted, which runs there.
        return Place::Right;
    }
    let on_alternate = match flags & raw::SA_ONSTACK as u64 {
        0 => None,
        _ => altstack::programs_of(frame).top_for(programs),
    };
    Place::Below(on_alternate.unwrap_or(below))
}

/// The frame of the call that was interrupted, where the gate had begun with one.
fn frame_of(context: &Context) -> Option<*mut slot::Frame> {
    let made = entry::made();
    let at_the_call = made.start - 2..made.end;
    slot::frame_of_stack(context.registers[RSP]).or_else(|| {
        at_the_call.contains(&context.registers[RIP]).then_some(context.registers[RBX] as *mut slot::Frame)
    })
}

/// The mask with which the kernel would have entered the handler, less what the action adds: that
/// of the thread, or the one that the interrupted call has put in its place.
fn mask_before(context: &Context, frame: Option<*mut slot::Frame>) -> u64 {
    const EINTR: u64 = (errno::EINTR as u64).wrapping_neg();
    let Some(frame) = frame else { return context.mask };
    if context.registers[RAX] != EINTR || slot::frame_of_stack(context.registers[RSP]).is_some() {
        return context.mask;
    }
    // SAFETY: the calling thread's frame.
    let frame = unsafe { &mut *frame };
    match core::mem::take(&mut frame.is_masked) {
        0 => context.mask,
        _ => frame.mask_of_call,
    }
}

/// Does what the kernel would have done, had it our handler not: the signal comes again, by itself
/// where the thread has raised it, and ends the process.
fn do_default(signal: u32, handler: u64, code: i32) {
    const IGNORES: u64 = 1;
    let is_sent = code <= 0;
    if is_sent && handler == IGNORES {
        return;
    }
    let _ = kernels_action(signal, Some(&[0; 4]));
    if is_sent {
        // It is blocked until the frame is left.
        crate::kernel::raise(signal);
    }
}

/// Copies the frame that rt_sigreturn is about to read to the thread's alternate stack, which no
/// pager takes; its context is at this address, and at the one that is returned. All signals are
/// blocked then, until the kernel sets the frame's mask.
pub(crate) fn bring_home(at: u64) -> u64 {
    let stack = altstack::of_kernel();
    if !altstack::is_ours(stack) || altstack::is_within(stack, at) {
        return at;
    }
    crate::kernel::set_mask(!0);
    // SAFETY: the kernel is about to read the context there.
    let mut context = unsafe { (at as *const Context).read() };
    let mut top = stack[0] + stack[2];
    if context.floating != 0 {
        let bytes = floating_end(context.floating) - context.floating;
        if bytes > stack[2] / 2 {
            // No processor has so much: the kernel is to refuse it.
            return at;
        }
        top = (top - bytes) & !(ALIGNMENT - 1);
        // SAFETY: the kernel is about to read the state; the thread does not use its alternate
        // stack, and no signal arrives there.
        unsafe {
            core::ptr::copy_nonoverlapping(context.floating as *const u8, top as *mut u8, bytes as usize);
        }
        context.floating = top;
    }
    let home = (top - size_of::<Context>() as u64) & !(ALIGNMENT - 1);
    // SAFETY: as above; it lies below the state.
    unsafe { (home as *mut Context).write(context) };
    home
}

/// The end of the floating point state at an address.
fn floating_end(at: u64) -> u64 {
    if at == 0 {
        return 0;
    }
    // SAFETY: the kernel wrote the state there; the words are within its first part.
    let [magic, size] = unsafe { ((at + FLOATING_MAGIC_AT) as *const [u32; 2]).read_unaligned() };
    at + if magic == FLOATING_MAGIC { size as u64 } else { FLOATING_BYTES }
}

/// Leads the signals for which the program has handlers already to [`deliver`]. While there is one
/// thread.
pub(crate) fn take_over_handlers() {
    for signal in (1..=64).filter(|signal| *signal != raw::SIGSYS) {
        let Ok(action) = kernels_action(signal, None) else { continue };
        let has_handler = action[0] > 1;
        if has_handler {
            ACTIONS[signal as usize - 1].write(action);
        }
        if has_handler || is_guarded(signal) {
            let ours = if has_handler { delivered(signal, action) } else { guarding(action[0]) };
            let _ = kernels_action(signal, Some(&ours));
        }
    }
}

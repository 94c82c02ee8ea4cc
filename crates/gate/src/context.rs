//! What a handler finds of a call that it has interrupted: the program's registers, at the site,
//! and not the gate's.
//!
//! Handlers look at the program counter: musl and later glibc cancel a thread only where it stands
//! at their own call, unwinders begin there, Go and Java decide by it. A handler may also move it,
//! and then the call is over. Words of the signal frame that the kernel does not read say what was
//! done.

use crate::entry;
use crate::slot::{self, Frame};

/// Words of a signal's context.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Context {
    flags: u64,
    link: u64,
    /// The alternate stack: address, flags, size.
    pub stack: [u64; 3],
    /// By the numbers below.
    pub registers: [u64; 17],
    pub flags_register: u64,
    rest: [u64; 5],
    /// The address of the floating point state.
    pub floating: u64,
    /// The kernel does not read them.
    reserved: [u64; 8],
    pub mask: u64,
}

const _: () = {
    assert!(core::mem::offset_of!(Context, floating) == 224);
    assert!(core::mem::offset_of!(Context, mask) == 296);
};

const R8: usize = 0;
const R9: usize = 1;
const R10: usize = 2;
pub(crate) const R11: usize = 3;
const R12: usize = 4;
const R13: usize = 5;
const R14: usize = 6;
const R15: usize = 7;
pub(crate) const RDI: usize = 8;
pub(crate) const RSI: usize = 9;
const RBP: usize = 10;
pub(crate) const RBX: usize = 11;
pub(crate) const RDX: usize = 12;
pub(crate) const RAX: usize = 13;
pub(crate) const RCX: usize = 14;
pub(crate) const RSP: usize = 15;
pub(crate) const RIP: usize = 16;

/// Registers in the order of a call's arguments.
const ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, R10, R8, R9];
/// Those that the frame keeps beside the call's.
const KEPT: [usize; 5] = [RBP, R12, R13, R14, R15];
/// Reserved words: what was done, where the program counter is shown, two more, and whether the
/// thread has an alternate stack of ours.
const KIND: usize = 0;
const SHOWN: usize = 1;
const FIRST: usize = 2;
const SECOND: usize = 3;
const AREA: usize = 4;
const HAS_AREA: u64 = 0x6761_7465_6172_6561;
const OF_A_SLOT: u64 = 0x6761_7465_736c_6f74;
const AT_ONCE: u64 = 0x6761_7465_6f6e_6365;
/// Bytes of a `syscall`.
const SITE_BYTES: u64 = 2;
/// Bytes of the stack that a call has which nothing looks at.
const AT_ONCE_BYTES: u64 = 144;

impl Context {
    /// Notes whether the thread has an alternate stack of ours.
    pub(crate) fn note_area(&mut self, has_area: bool) {
        self.reserved[AREA] = if has_area { HAS_AREA } else { 0 };
    }

    /// Whether rt_sigreturn with this frame must leave the alternate stack as it is.
    pub(crate) fn has_area(&self) -> bool {
        self.reserved[AREA] == HAS_AREA
    }
}

/// Shows a handler the program's registers in place of the call's.
pub(crate) fn show(context: &mut Context, frame: Option<*mut Frame>) {
    // The kernel leaves what was in these words.
    context.reserved[KIND] = 0;
    match frame {
        // SAFETY: the calling thread's frame.
        Some(frame) => show_slot(context, unsafe { &mut *frame }),
        None => {
            take_back(context);
            show_at_once(context);
        }
    }
}

fn show_slot(context: &mut Context, frame: &mut Frame) {
    let registers = &mut context.registers;
    let result = match () {
        () if entry::made().contains(&registers[RIP]) => Some(registers[RAX]),
        () if frame.is_made != 0 => Some(frame.call[0]),
        () => None,
    };
    frame.context[..17].copy_from_slice(registers);
    frame.context[17] = context.flags_register;
    for (register, value) in ARGUMENTS.iter().zip(&frame.saved[1..]) {
        registers[*register] = *value;
    }
    registers[RAX] = result.unwrap_or(frame.saved[0]);
    registers[RIP] = if result.is_some() { frame.site } else { frame.site - SITE_BYTES };
    registers[RSP] = frame.stack;
    registers[RBX] = frame.rbx;
    registers[RCX] = frame.site;
    registers[R11] = frame.flags;
    for (register, value) in KEPT.iter().zip(&frame.kept) {
        registers[*register] = *value;
    }
    context.flags_register = frame.flags;
    context.reserved[KIND] = OF_A_SLOT;
    context.reserved[SHOWN] = registers[RIP];
    context.reserved[FIRST] = &raw const *frame as u64;
    context.reserved[SECOND] = if result.is_some() { frame.goes_on } else { registers[RIP] };
}

/// A call that has begun, and of which nothing is done, has not begun: the thread makes it again.
fn take_back(context: &mut Context) {
    let registers = &mut context.registers;
    let Some(below) = entry::begun(registers[RIP]) else { return };
    let mut site = registers[R11];
    if below == entry::PUSHED {
        // SAFETY: the entry has pushed the flags last, and the address behind the site before.
        [context.flags_register, site] = unsafe { (registers[RSP] as *const [u64; 2]).read() };
    }
    registers[RSP] += below;
    registers[RIP] = site - SITE_BYTES;
}

fn show_at_once(context: &mut Context) {
    let (made, registers) = (entry::made_at_once(), &mut context.registers);
    if registers[RIP] != made && registers[RIP] != made - SITE_BYTES {
        return;
    }
    // SAFETY: the entry has pushed the address behind the site last.
    let site = unsafe { (registers[RSP] as *const u64).read() };
    let back = made - registers[RIP];
    context.reserved[KIND] = AT_ONCE;
    context.reserved[SHOWN] = site - back;
    context.reserved[FIRST] = registers[RIP];
    context.reserved[SECOND] = registers[RSP];
    registers[RIP] = site - back;
    registers[RSP] += AT_ONCE_BYTES;
}

/// Before rt_sigreturn: gives the call its registers back, unless the handler has moved the thread
/// to another place: then the call is over. `context` lies behind the first word of the frame.
pub(crate) fn restore(context: &mut Context) {
    let (kind, shown) = (context.reserved[KIND], context.reserved[SHOWN]);
    let is_where_it_was = context.registers[RIP] == shown;
    context.reserved[KIND] = 0;
    match kind {
        AT_ONCE if is_where_it_was => {
            context.registers[RIP] = context.reserved[FIRST];
            context.registers[RSP] = context.reserved[SECOND];
        }
        OF_A_SLOT => {
            let copy = &raw const *context as u64 - size_of::<u64>() as u64;
            let Some(frame) = slot::interrupted_at(context.reserved[FIRST], copy) else {
                // A forked child that has lost the call: behind the site may be the rest of a jump.
                if is_where_it_was {
                    context.registers[RIP] = context.reserved[SECOND];
                }
                return;
            };
            if is_where_it_was {
                // SAFETY: the calling thread's frame.
                let frame = unsafe { &mut *frame };
                slot::forget_interruption(frame);
                context.registers.copy_from_slice(&frame.context[..17]);
                context.flags_register = frame.context[17];
            } else {
                // The call is over.
                slot::abandon(frame);
            }
        }
        _ => {}
    }
}

//! Stacks of the gate's own: what the slow path has of a call, and where it runs.
//!
//! A program's stack may have no room (Go), may leave memory, and may be gone when its thread ends
//! (musl unmaps it), so a call of the slow path takes a slot: its frame, and the stack below it.
//! The kernel is entered with the program's stack pointer, so that signals find the program's
//! stack; `rbx` has the frame meanwhile.
//!
//! A handler that leaves a call by a jump leaves its slot. Such slots are found when none is free:
//! the copy of the signal's frame, without which the call cannot go on, has been overwritten.

use crate::entry::Registers;
use crate::hazard::{PAGE, SlotIndex};
use crate::kernel::{self, Readable};
use crate::{call, confined, figures, pins};
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use linux_raw_sys::general as raw;

/// Calls of the slow path that may be under way at once. Further ones use the program's stack.
pub const SLOTS: usize = 256;
/// Bytes of a slot. Hooks run there too.
pub(crate) const SLOT_BYTES: usize = 16 << 10;
/// The search for a free slot begins at one of the first so many, chosen by the stack pointer, so
/// that threads seldom meet.
pub(crate) const FIRST: usize = 64;
/// Byte of a signal frame with the stack pointer, which the program counter follows.
const CONTEXT_RSP: u64 = 8 + 40 + 15 * 8;
const TAKEN: u32 = 1;
/// One claim, in the word that has the bit.
pub(crate) const CLAIM: u32 = 0x100;

/// What the slow path has of a call. The entry knows the places of all but the last words.
#[repr(C, align(64))]
pub(crate) struct Frame {
    /// Byte 0: 1 while the slot is taken. The rest counts up at each claim.
    taken: AtomicU32,
    /// Whose exec it is, if it is one: 1 while `exec_thread` says so.
    is_exec: AtomicU32,
    /// The program's stack pointer.
    pub stack: u64,
    /// The stack pointer for the kernel: the program's, or, without a slot, one below this frame.
    pub call_stack: u64,
    /// The program's `rbx`.
    pub rbx: u64,
    /// The program's flags.
    pub flags: u64,
    /// The address behind the site's `syscall`.
    pub site: u64,
    /// Where the thread goes on.
    pub goes_on: u64,
    /// What goes to the kernel; word 0 is the number before, and the result after the call.
    pub call: Registers,
    /// What the program gave; it gets all but word 0 back.
    pub saved: Registers,
    pad: u64,
    sse: [u64; 32],
    /// Words that a path keeps over the call: masks, structures with pointers, actions.
    pub scratch: [u64; 12],
    /// 1 where the kernel puts a mask in place of the thread's for the time of the call, until a
    /// handler has run in it.
    pub is_masked: u64,
    /// That mask.
    pub mask_of_call: u64,
    /// The hold of the call.
    pub hold: pins::Hold,
    /// Where a handler that interrupted the call has its signal frame; 0: none did, as in a slot
    /// that is free.
    interrupted: AtomicU64,
    /// The stack pointer and program counter in that frame.
    interrupted_at: [AtomicU64; 2],
    /// The word with the claim that was interrupted.
    interrupted_claim: AtomicU32,
    /// The alternate stack on which that signal arrived.
    interrupted_area: AtomicU64,
    /// Odd while a signal frame is being copied for a handler that interrupts the call.
    interruptions: AtomicU64,
    /// The registers of the call while a handler that interrupted it runs, and the flags: it finds
    /// those of the program in their place.
    pub context: [u64; 18],
    /// 1 once the kernel's part of the call is over.
    pub is_made: u64,
    /// The program's `rbp` and `r12` to `r15`.
    pub kept: [u64; 5],
    /// 1 while the call keeps text from being rewritten.
    pub holds_text: u64,
    /// The thread pointer of an exec's thread.
    exec_thread: u64,
    /// What [`crate::inside`] knows the frame by while its call holds something.
    pub lent: AtomicU64,
}

impl Frame {
    /// Overwrites the words that a call inside a program does not use: one of them may be where an
    /// earlier frame, whose call was left, has the word that says it is there.
    pub(crate) fn overwrite_unused(&mut self) {
        self.is_exec = AtomicU32::new(0);
        self.pad = 0;
        self.scratch = [0; 12];
        self.mask_of_call = 0;
        self.interrupted_at = [const { AtomicU64::new(0) }; 2];
        self.interrupted_claim = AtomicU32::new(0);
        self.interrupted_area = AtomicU64::new(0);
        self.interruptions = AtomicU64::new(0);
        self.context = [0; 18];
        self.exec_thread = 0;
    }
}

/// Places that the entry uses.
pub(crate) mod place {
    use super::Frame;
    use core::mem::offset_of;
    pub const STACK: usize = offset_of!(Frame, stack);
    pub const CALL_STACK: usize = offset_of!(Frame, call_stack);
    pub const RBX: usize = offset_of!(Frame, rbx);
    pub const FLAGS: usize = offset_of!(Frame, flags);
    pub const SITE: usize = offset_of!(Frame, site);
    pub const GOES_ON: usize = offset_of!(Frame, goes_on);
    pub const CALL: usize = offset_of!(Frame, call);
    pub const SAVED: usize = offset_of!(Frame, saved);
    pub const SSE: usize = offset_of!(Frame, sse);
    pub const IS_MADE: usize = offset_of!(Frame, is_made);
    pub const KEPT: usize = offset_of!(Frame, kept);
    pub const INTERRUPTED: usize = offset_of!(Frame, interrupted);
    pub const BYTES: usize = size_of::<Frame>();
}

#[repr(C, align(4096))]
struct Slot {
    stack: UnsafeCell<[u8; SLOT_BYTES - size_of::<Frame>()]>,
    frame: UnsafeCell<Frame>,
}

// SAFETY: whoever has set the bit of a frame has the rest of its slot until it clears the bit.
unsafe impl Sync for Slot {}

const _: () = {
    assert!(size_of::<Slot>() == SLOT_BYTES);
    assert!(core::mem::offset_of!(Frame, taken) == 0);
    assert!(size_of::<Frame>().is_multiple_of(64));
};

/// All zero, so that an image has no bytes of it.
pub(crate) static TABLE: Table = Table(
    [const {
        Slot {
            stack: UnsafeCell::new([0; SLOT_BYTES - size_of::<Frame>()]),
            // SAFETY: zero is a value of each of its words.
            frame: UnsafeCell::new(unsafe { core::mem::zeroed() }),
        }
    }; SLOTS + FIRST],
);

#[repr(transparent)]
pub(crate) struct Table([Slot; SLOTS + FIRST]);

impl Table {
    fn start() -> u64 {
        crate::entry::address_of!(TABLE)
    }

    fn frame_at(index: usize) -> *mut Frame {
        (Self::start() as usize + (index + 1) * SLOT_BYTES - size_of::<Frame>()) as *mut Frame
    }

    fn all() -> impl Iterator<Item = *mut Frame> {
        (0..SLOTS + FIRST).map(Self::frame_at)
    }
}

/// The number of the slot in which an address lies.
fn index_at(address: u64) -> Option<u32> {
    let at = address.wrapping_sub(Table::start());
    (at < size_of::<Table>() as u64).then_some((at / SLOT_BYTES as u64) as u32)
}

/// The number of a frame's slot; none for a frame on a program's stack.
pub(crate) fn index_of(frame: &Frame) -> Option<u32> {
    index_at(&raw const *frame as u64)
}

/// The frame on whose stack this address lies.
pub(crate) fn frame_of_stack(address: u64) -> Option<*mut Frame> {
    index_at(address).map(|index| Table::frame_at(index as usize))
}

/// The frame at exactly this address, if there is one in the table.
fn frame_at(address: u64) -> Option<*mut Frame> {
    frame_of_stack(address).filter(|frame| *frame as u64 == address)
}

/// Takes a slot for another thread's frame. None: all are taken.
pub(crate) fn claim() -> Option<*mut Frame> {
    let free = || {
        Table::all().find(|frame| {
            // SAFETY: the word is atomic, and part of the table.
            let taken = unsafe { &(**frame).taken };
            if taken.load(Relaxed) & TAKEN != 0 || taken.fetch_or(TAKEN, Acquire) & TAKEN != 0 {
                return false;
            }
            taken.fetch_add(CLAIM, Relaxed);
            true
        })
    };
    free().or_else(|| {
        find_abandoned(&raw const free as u64);
        free()
    })
}

/// Frees a slot whose frame nobody else has.
pub(crate) fn free(frame: *mut Frame) {
    // SAFETY: the frame is one of the table's.
    unsafe {
        (*frame).is_exec.store(0, Relaxed);
        (*frame).interrupted.store(0, Relaxed);
        (*frame).taken.fetch_and(!(CLAIM - 1), Release);
    }
}

/// A copy of a frame for a child that begins on a stack of its own.
pub(crate) fn copy(from: &Frame, to: *mut Frame) {
    // SAFETY: the slot of `to` was claimed for this, and nobody else has it yet.
    unsafe {
        (*to).rbx = from.rbx;
        (*to).flags = from.flags;
        (*to).site = from.site;
        (*to).goes_on = from.goes_on;
        (*to).saved = from.saved;
        (*to).sse = from.sse;
        (*to).scratch = from.scratch;
        (*to).is_masked = 0;
        (*to).hold = pins::Hold::Nothing;
        (*to).interrupted.store(0, Relaxed);
    }
}

/// The frame of the call whose handler has its signal frame here; none where the slot is another's
/// by now. A frame without a slot lies above the copy, on the same stack.
pub(crate) fn interrupted_at(frame: u64, copy: u64) -> Option<*mut Frame> {
    const NEAR: u64 = 64 << 10;
    let has = |frame: &*mut Frame| {
        // SAFETY: the words are atomic, and the frame is one of the table's or of this stack.
        unsafe { (**frame).interrupted.load(Acquire) == copy }
    };
    let is_taken = |frame: &*mut Frame| {
        // SAFETY: as above.
        let frame = unsafe { &**frame };
        let taken = frame.taken.load(Acquire);
        taken & TAKEN != 0 && taken == frame.interrupted_claim.load(Acquire)
    };
    match frame_of_stack(frame) {
        Some(_) => frame_at(frame).filter(has).filter(is_taken),
        None => {
            let is_above = frame.is_multiple_of(64) && frame.wrapping_sub(copy) < NEAR;
            is_above.then_some(frame as *mut Frame).filter(has)
        }
    }
}

/// Ends a call that cannot go on, and frees its slot, unless another thread has found it meanwhile.
pub(crate) fn abandon(frame: *mut Frame) {
    // SAFETY: the words are atomic, and the frame is one of the table's or of this stack.
    let shared = unsafe { &*frame };
    if index_of(shared).is_none() {
        // SAFETY: the frame is on this thread's stack.
        return call::abandoned(unsafe { &mut *frame });
    }
    abandon_claim(frame, shared.interrupted_claim.load(Acquire));
}

fn abandon_claim(frame: *mut Frame, claim: u32) {
    // SAFETY: the word is atomic.
    let taken = unsafe { &(*frame).taken };
    // Whoever moves the count has the slot.
    if taken.compare_exchange(claim, claim.wrapping_add(CLAIM), AcqRel, Relaxed).is_ok() {
        // SAFETY: the slot is this thread's now.
        call::abandoned(unsafe { &mut *frame });
        free(frame);
        figures::ABANDONED.add();
    }
}

/// The handler is over: the copy no longer says whether the call lives.
pub(crate) fn forget_interruption(frame: &Frame) {
    frame.interrupted.store(0, Release);
}

/// Frees the slots of other threads' calls in the child of a fork: they are its parent's. Calls
/// that handlers of this thread have interrupted stay, and what they hold: the child may be in such
/// a handler, and return to the call. `area` is this thread's alternate stack.
pub(crate) fn forget_others(own: &Frame, area: u64) {
    for frame in Table::all() {
        // SAFETY: the child is alone.
        let shared = unsafe { &mut *frame };
        let taken = shared.taken.load(Relaxed);
        if frame.cast_const() == &raw const *own || taken & TAKEN == 0 {
            continue;
        }
        shared.holds_text = 0;
        let is_this_threads = shared.interrupted.load(Relaxed) != 0
            && shared.interrupted_claim.load(Relaxed) == taken
            && shared.interrupted_area.load(Relaxed) == area;
        if !is_this_threads {
            pins::release(shared);
            free(frame);
        }
    }
}

/// Whether a handler has interrupted this call, and can still return to it.
fn is_interrupted(frame: &Frame, here: u64) -> bool {
    let copy = frame.interrupted.load(Acquire);
    let said = [&frame.interrupted_at[0], &frame.interrupted_at[1]].map(|word| word.load(Acquire));
    let mut now = [0; 2];
    copy != 0
        && frame.interrupted_claim.load(Acquire) == frame.taken.load(Acquire)
        && pins::read_words(copy + CONTEXT_RSP, &mut now, here) == Readable::Yes
        && now == said
}

/// Notes that this call is an exec of the thread with this thread pointer: where it succeeds in the
/// child of a vfork, the parent must end what the call holds.
pub(crate) fn note_exec(frame: &mut Frame, thread: u64) {
    frame.exec_thread = thread;
    frame.is_exec.store(1, Release);
    match index_of(frame) {
        Some(index) => {
            EXECS_END.fetch_max(index + 1, AcqRel);
        }
        None => {
            let lent = match frame.hold {
                pins::Hold::Lent(index) => index.0 as u64 + 1,
                pins::Hold::Crowd => 0,
                _ => return,
            };
            let free =
                |[place, _]: &&[AtomicU64; 2]| place.compare_exchange(0, thread, AcqRel, Relaxed).is_ok();
            if let Some([_, held]) = EXECS_WITHOUT.iter().find(free) {
                held.store(lent, Release);
            }
        }
    }
}

/// Thread pointers of execs that have no stack of the gate's, 0: none; and what each holds: the
/// number of the slot that it was lent, plus one, or 0: everything.
static EXECS_WITHOUT: [[AtomicU64; 2]; 64] = [const { [const { AtomicU64::new(0) }; 2] }; 64];

/// Slots from this one on have never had an exec.
static EXECS_END: AtomicU32 = AtomicU32::new(0);

/// The exec failed.
pub(crate) fn forget_exec(frame: &mut Frame) {
    if index_of(frame).is_none() && frame.exec_thread != 0 {
        let is_this = |[place, _]: &&[AtomicU64; 2]| {
            place.compare_exchange(frame.exec_thread, 0, AcqRel, Relaxed).is_ok()
        };
        let _ = EXECS_WITHOUT.iter().find(is_this);
    }
    frame.is_exec.store(0, Relaxed);
}

/// Frees the slots of execs that did not return, in the parent of a vfork: its child had the same
/// thread pointer, and has left this memory.
pub(crate) fn free_execs_of(thread: u64) {
    for [place, held] in &EXECS_WITHOUT {
        let lent = held.load(Acquire);
        if thread != 0 && place.compare_exchange(thread, 0, AcqRel, Relaxed).is_ok() {
            pins::end_without_stack(lent.checked_sub(1).map(|index| SlotIndex(index as u32)));
        }
    }
    for frame in Table::all().take(EXECS_END.load(Acquire) as usize) {
        // SAFETY: the words are atomic; where the bit says so, the child that wrote is gone.
        let frame = unsafe { &mut *frame };
        let is_exec = frame.taken.load(Acquire) & TAKEN != 0 && frame.is_exec.load(Acquire) == 1;
        if is_exec && thread != 0 && frame.exec_thread == thread {
            pins::release(frame);
            free(frame);
        }
    }
}

/// Copies a signal's frame for a handler that interrupts this call, by `copy`, and notes where it
/// is and what it says of the call. The thread must be the call's.
pub(crate) fn interrupt(
    frame: *mut Frame,
    area: u64,
    at: u64,
    [stack, counter]: [u64; 2],
    copy: impl FnOnce(),
) {
    // SAFETY: the frame is one of the table's, or of this thread's stack.
    let frame = unsafe { &*frame };
    frame.interruptions.fetch_add(1, AcqRel);
    copy();
    frame.interrupted_at[0].store(stack, Relaxed);
    frame.interrupted_at[1].store(counter, Relaxed);
    frame.interrupted_claim.store(frame.taken.load(Relaxed), Relaxed);
    frame.interrupted_area.store(area, Relaxed);
    frame.interrupted.store(at, Relaxed);
    frame.interruptions.fetch_add(1, AcqRel);
}

/// A call has found no slot: looks for abandoned ones, at the first such call and at some later
/// ones.
pub(crate) fn none_was_free(frame: &Frame) {
    const EACH: u32 = 64;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    if CALLS.fetch_add(1, Relaxed).is_multiple_of(EACH) {
        find_abandoned(&raw const *frame as u64);
    }
}

/// Frees the slots of calls that a handler has left by a jump. `here` is an address that is there.
pub(crate) fn find_abandoned(here: u64) {
    if confined::is_confined() {
        return;
    }
    for frame in Table::all() {
        // SAFETY: what is read of a frame that others may have is atomic.
        let shared = unsafe { &*frame };
        let taken = shared.taken.load(Acquire);
        let before = shared.interruptions.load(Acquire);
        let copy = shared.interrupted.load(Acquire);
        if taken & TAKEN == 0 || copy == 0 || !before.is_multiple_of(2) {
            continue;
        }
        let is_this_claims = shared.interrupted_claim.load(Acquire) == taken;
        // The count of interruptions is looked at last: it has moved where the copy is another's.
        if is_this_claims
            && !is_interrupted(shared, here)
            && shared.interrupted.load(Acquire) == copy
            && shared.interruptions.load(Acquire) == before
        {
            abandon_claim(frame, taken);
        }
    }
}

/// Keeps the table from taking huge pages, of which it would use little.
pub(crate) fn prepare() {
    let start = Table::start().next_multiple_of(PAGE);
    let bytes = size_of::<Table>() as u64 & !(PAGE - 1);
    // SAFETY: changes how the kernel backs the table.
    let _ = unsafe { kernel::call(raw::__NR_madvise, [start, bytes, raw::MADV_NOHUGEPAGE as u64, 0, 0, 0]) };
}

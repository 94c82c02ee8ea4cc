//! The gate inside a program that did not ask for it: a library manages some memory of its own, and
//! calls of the C library hold what they use of it.
//!
//! There is no dispatch, and signals stay the program's: the C library's sites are rewritten, all
//! at once, while the process's other threads stand still. A call made elsewhere is not seen.
//!
//! A frame lies on its thread's stack, since a signal may arrive during a call, and its handler
//! needs room. A handler may also leave the call by a jump. So each hold knows its frame by a word
//! in it, which others overwrite when the stack is used again; now and then such holds are looked
//! for.

mod stop;
mod texts;
mod threads;

use crate::entry::{AT_SITE, ON_STACK, SLOW};
use crate::hazard::{PAGE, SlotIndex};
use crate::kernel::Readable;
use crate::pins::{ALL_SLOTS, HAZARDS, WITH_STACK};
use crate::slot::Frame;
use crate::{hooks, kernel, pins, rewrite, table};
use core::ops::Range;
use core::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use linux_raw_sys::{general as raw, prctl};
pub use texts::for_each_site;

/// Calls that the kernel begins on another stack, or does not return from as from others: their
/// site makes them.
const AT_SITES: [u32; 9] = [
    raw::__NR_clone,
    raw::__NR_clone3,
    raw::__NR_fork,
    raw::__NR_vfork,
    raw::__NR_execve,
    raw::__NR_execveat,
    raw::__NR_exit,
    raw::__NR_exit_group,
    raw::__NR_rt_sigreturn,
];

/// Holds are lent from here on, so that the evictor looks at few.
const HINTS: u64 = 64;

/// Holds between two looks for ones whose calls a handler has left.
const EACH: u64 = 1024;

/// Why no call is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No `syscall` of these texts can be rewritten.
    Text,
    /// A thread does not stand still: it blocks even the signals that the C library keeps for
    /// itself, or there are more than [`THREADS_MAX`].
    Threads,
}

/// Threads that can be made to stand still.
pub const THREADS_MAX: usize = stop::MOST;

/// The most bytes of a region that a call may hold which cannot be made in pieces. Under a pager of
/// the whole program there is no such bound.
pub(crate) fn held_most() -> u64 {
    if !is_on() {
        return u64::MAX;
    }
    hooks::HELD_AT_ONCE.get().map_or(u64::MAX, |at_once| at_once().saturating_mul(2))
}

/// Forgets, in the child of a fork, what calls of its parent's threads hold, and what engines were
/// about to take.
pub fn forget_all() {
    HAZARDS.forget_crowd();
    HAZARDS.give_back_others(None);
    stop::forget_threads();
    LENT.iter().for_each(|place| place.store(0, Relaxed));
}

/// Whether the gate stands inside a program.
pub(crate) fn is_on() -> bool {
    ON_STACK.load(Relaxed) != 0
}

/// Makes the calls of these texts hold what they use of managed memory, from now on and for ever.
/// [`crate::hooks::MANAGED`] must be set, and may be [`crate::hooks::HELD_AT_ONCE`]. Other threads
/// stand still for some milliseconds, and calls in which they wait may end with EINTR, as by a
/// signal. Cost: some 20 us for each site.
///
/// # Errors
/// [`Refusal`]: no text is changed.
///
/// # Safety
/// The texts must be mapped, readable, and be those of objects that are never unmapped, as this
/// code must be.
pub unsafe fn stand_inside(of: &[Range<u64>]) -> Result<(), Refusal> {
    choose_calls();
    find_number();
    ON_STACK.store(1, Relaxed);
    let refused = |refusal| {
        ON_STACK.store(0, Relaxed);
        Err(refusal)
    };
    let mut ready = 0;
    for text in of {
        // SAFETY: by the caller's contract.
        let text = unsafe { texts::bytes(text) };
        for_each_site(text, |behind| {
            let behind = text.as_ptr() as u64 + behind as u64;
            ready += usize::from(rewrite::make_ready(behind) == rewrite::State::Ready);
        });
    }
    if ready == 0 {
        return refused(Refusal::Text);
    }
    // SAFETY: `stop` calls this while no other thread runs, and none stands behind a site.
    let rewrite = || unsafe { rewrite::rewrite_ready() };
    match stop::others_stand_while(rewrite) {
        // Some sites may be what they were: their calls are not seen.
        Ok(left) if left < ready => Ok(()),
        Ok(_) => refused(Refusal::Text),
        Err(stop::Moves) => refused(Refusal::Threads),
    }
}

/// Chooses what the entry looks at: whatever names memory, and what only a site can make.
fn choose_calls() {
    for (number, slow) in SLOW.iter().enumerate() {
        if table::operands(number as u32).is_none_or(|operands| !operands.is_empty()) {
            slow.store(1, Relaxed);
        }
    }
    for number in AT_SITES {
        SLOW[number as usize].store(AT_SITE, Relaxed);
    }
}

/// Where to look for a hold that is to be lent, for a frame at this address.
pub(crate) fn hint(frame: u64) -> usize {
    (frame / PAGE % HINTS) as usize
}

/// By number of a hold: the frame that has it, and in the upper bits how often it was lent; 0 while
/// nobody has it.
static LENT: [AtomicU64; ALL_SLOTS - WITH_STACK] = [const { AtomicU64::new(0) }; ALL_SLOTS - WITH_STACK];
/// The thread that has it: its thread pointer, and its number.
static OF: [[AtomicU64; 2]; ALL_SLOTS - WITH_STACK] =
    [const { [const { AtomicU64::new(0) }; 2] }; ALL_SLOTS - WITH_STACK];
static TIMES: AtomicU64 = AtomicU64::new(0);
const ADDRESS_BITS: u32 = 47;
/// In the word of a hold: its call ends it, and nobody else does, unless that thread has ended.
const ENDS: u64 = 1 << 63;

fn place(index: SlotIndex) -> Option<&'static AtomicU64> {
    LENT.get((index.0 as usize).checked_sub(WITH_STACK)?)
}

/// The calling thread, as the C library knows it.
fn thread() -> u64 {
    let pointer: u64;
    // SAFETY: a thread of the C library has its own address there.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

/// Where the C library keeps a thread's number, from its thread pointer on; the kernel writes zero
/// there when the thread ends. 0: unknown.
static NUMBER_AT: AtomicU64 = AtomicU64::new(0);

/// Finds where the C library keeps a thread's number: where it has asked the kernel to write zero
/// at the thread's end.
fn find_number() {
    const FURTHEST: u64 = 4096;
    let mut word = 0u64;
    let arguments = [prctl::PR_GET_TID_ADDRESS as u64, &raw mut word as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes one word.
    let asked = unsafe { kernel::call(raw::__NR_prctl, arguments) };
    if let Some(at) = word.checked_sub(thread()).filter(|at| asked.is_ok() && *at < FURTHEST) {
        NUMBER_AT.store(at, Relaxed);
    }
}

/// Whether the thread that has had a hold has ended.
fn has_ended(of: u64, number: u64) -> bool {
    let at = NUMBER_AT.load(Relaxed);
    let mut now = [0];
    if pins::are_managed(of + at, size_of_val(&now) as u64) {
        return false;
    }
    match kernel::peek_words(of + at, &mut now) {
        Ok(Readable::Yes) => at != 0 && now[0] as u32 != number as u32,
        Ok(Readable::No) => true,
        Err(_) => false,
    }
}

/// Notes that a frame has a hold.
pub(crate) fn lent(index: SlotIndex, frame: &mut Frame) {
    frame.overwrite_unused();
    let times = TIMES.fetch_add(1, Relaxed);
    let word = (&raw const *frame as u64 | times << ADDRESS_BITS) & !ENDS;
    frame.lent.store(word, Relaxed);
    if let (Some(place), Some(of)) = (place(index), OF.get(index.0 as usize - WITH_STACK)) {
        let (thread, at) = (thread(), NUMBER_AT.load(Relaxed));
        of[0].store(thread, Relaxed);
        // SAFETY: the C library's description of the thread; where the number is unknown, a word of
        // it.
        of[1].store(unsafe { ((thread + at) as *const u32).read_volatile() }.into(), Relaxed);
        place.store(word, Release);
    }
    if times % EACH == EACH - 1 {
        end_abandoned();
    }
}

/// Ends the hold of a call, unless somebody took it for abandoned. The thread may be cancelled at
/// each instruction.
pub(crate) fn end(index: SlotIndex, frame: &Frame) {
    // Nobody else takes the hold as long as the frame has its word.
    HAZARDS.release(index);
    let word = frame.lent.swap(0, Relaxed);
    let Some(place) = place(index) else { return };
    if place.compare_exchange(word, word | ENDS, AcqRel, Relaxed).is_ok() {
        place.store(0, Release);
        HAZARDS.give_back(index);
    }
}

/// Ends the holds of calls that will not: a handler has left them by a jump, and their stacks are
/// used again by now; or their thread has ended, since it was cancelled.
fn end_abandoned() {
    let offset = core::mem::offset_of!(Frame, lent) as u64;
    for index in WITH_STACK as u32..HAZARDS.peak() {
        let (Some(place), Some(of)) = (place(SlotIndex(index)), OF.get(index as usize - WITH_STACK)) else {
            return;
        };
        let word = place.load(Acquire);
        if word == 0 {
            continue;
        }
        let frame = word & ((1 << ADDRESS_BITS) - 1);
        let [thread, number] = of.each_ref().map(|word| word.load(Relaxed));
        let mut now = [0];
        // What cannot be looked at is taken for alive: a stack in a region, or a filter's doing.
        let mut is_left = || {
            word & ENDS == 0
                && !pins::are_managed(frame, size_of::<Frame>() as u64)
                && match kernel::peek_words(frame + offset, &mut now) {
                    Ok(Readable::Yes) => now != [word],
                    Ok(Readable::No) => true,
                    Err(_) => false,
                }
        };
        // A frame that ends its hold at this moment has overwritten the word too: whoever changes
        // the place gives the hold back.
        if (has_ended(thread, number) || is_left())
            && place.compare_exchange(word, 0, AcqRel, Relaxed).is_ok()
        {
            HAZARDS.give_back(SlotIndex(index));
        }
    }
}

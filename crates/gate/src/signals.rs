//! Actions and masks of signals: the kernel has ours, and the program reads back what it set.
//!
//! Each handler of the program is entered by [`crate::delivery`]. The action of SIGSYS is kept here
//! alone, and no mask may block that signal. A program's mask of blocked signals reads without
//! SIGSYS: a thread has no place where the gate could keep the bit without thread-local storage.
//! rt_sigtimedwait and signalfd see only what is blocked, so they see no SIGSYS that others send.

use crate::call::answer;
use crate::context::{self, Context};
use crate::entry::{self, Path};
use crate::kernel::{Errno, Readable, call, outcome, read_words, set_mask, write_words};
use crate::slot::Frame;
use crate::{altstack, confined, delivery, hooks};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use linux_raw_sys::{errno, general as raw};

/// SIGSYS in a mask.
pub(crate) const SIGSYS_BIT: u64 = 1 << (raw::SIGSYS - 1);
pub(crate) const SA_RESTORER: u64 = 0x0400_0000;
/// Bytes of the kernel's mask.
const MASK_BYTES: u64 = 8;
/// The longest wait for another thread that sets the same action, in looks.
const LOOKS: u32 = 1 << 16;
/// Signals that the kernel numbers.
const SIGNALS: u32 = 64;

/// An action as the kernel has it: handler, flags, restorer, mask.
pub(crate) type Action = [u64; 4];

/// An action of the program's, which the kernel never sees.
pub(crate) struct KeptAction {
    /// Odd while a thread writes.
    version: AtomicU32,
    words: [AtomicU64; 4],
}

/// The last handler that the program had for each signal, from 1 on; that of SIGSYS is what the
/// program thinks it has, handler or not.
pub(crate) static ACTIONS: [KeptAction; SIGNALS as usize] =
    [const { KeptAction { version: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 4] } };
        SIGNALS as usize];

/// What the program thinks its action of SIGSYS to be.
pub(crate) fn of_sigsys() -> &'static KeptAction {
    &ACTIONS[raw::SIGSYS as usize - 1]
}

impl KeptAction {
    pub(crate) fn read(&self) -> Action {
        let mut action = [0; 4];
        for _ in 0..LOOKS {
            let version = self.version.load(Acquire);
            for (word, kept) in action.iter_mut().zip(&self.words) {
                *word = kept.load(Acquire);
            }
            if version.is_multiple_of(2) && self.version.load(Acquire) == version {
                break;
            }
            core::hint::spin_loop();
        }
        action
    }

    /// Sets the action. Where a thread was interrupted while it wrote, and does not go on, the next
    /// writer waits for it in vain for a moment.
    pub(crate) fn write(&self, action: Action) {
        let mut version = self.version.load(Acquire);
        for _ in 0..LOOKS {
            if version.is_multiple_of(2)
                && self.version.compare_exchange(version, version.wrapping_add(1), AcqRel, Acquire).is_ok()
            {
                break;
            }
            core::hint::spin_loop();
            version = self.version.load(Acquire);
        }
        let version = version & !1;
        for (kept, word) in self.words.iter().zip(action) {
            kept.store(word, Release);
        }
        self.version.store(version.wrapping_add(2), Release);
    }
}

/// Sets the kernel's action for a signal, if there is a new one; returns the one before.
pub(crate) fn kernels_action(signal: u32, new: Option<&Action>) -> Result<Action, Errno> {
    let mut before: Action = [0; 4];
    let new = new.map_or(0, |action| action.as_ptr() as u64);
    let words = [signal as u64, new, before.as_mut_ptr() as u64, MASK_BYTES, 0, 0];
    // SAFETY: reads and writes one action each.
    unsafe { call(raw::__NR_rt_sigaction, words) }.map(|_| before)
}

/// The kernel's action in place of one with a handler. While the delivery runs all is blocked. What
/// the kernel would do once, where our handler must stay, is done by the delivery.
pub(crate) fn delivered(signal: u32, [_, flags, restorer, _]: Action) -> Action {
    let once = if is_guarded(signal) { raw::SA_RESETHAND as u64 } else { 0 };
    [entry::delivery(), flags & !once | raw::SA_ONSTACK as u64, restorer, !0]
}

/// SIG_IGN.
const IGNORES: u64 = 1;

/// The kernel's action for SIGSEGV where the program has no handler, and calls touch what they use:
/// it has our restorer. `handler` is what the program has, SIG_DFL or SIG_IGN: a flag says which.
/// (The kernel has the action of each process; our memory may be shared with a vfork's child.)
pub(crate) fn guarding(handler: u64) -> Action {
    let ignores = if handler == IGNORES { raw::SA_RESTART } else { 0 };
    let flags = raw::SA_ONSTACK | raw::SA_SIGINFO | ignores;
    [entry::delivery(), flags as u64 | SA_RESTORER, entry::restorer(), !0]
}

/// What the program has where the kernel has an action of [`guarding`]; none where it has another.
fn guarded_by([handler, flags, restorer, _]: Action) -> Option<u64> {
    let is_ours = handler == entry::delivery() && restorer == entry::restorer();
    is_ours.then_some(if flags & raw::SA_RESTART as u64 != 0 { IGNORES } else { 0 })
}

/// What this process has for SIGSEGV, where it has no handler and the kernel has ours.
pub(crate) fn guarded_now() -> Option<u64> {
    kernels_action(raw::SIGSEGV, None).ok().and_then(guarded_by)
}

/// Whether the kernel has our handler for this signal also where the program has none.
pub(crate) fn is_guarded(signal: u32) -> bool {
    signal == raw::SIGSEGV && hooks::MANAGED.get().is_some()
}

/// rt_sigreturn: the frame gets what the call needs that was interrupted; the program may have put
/// SIGSYS into the mask.
pub(crate) fn before_return(frame: &mut Frame) -> Path {
    // SAFETY: the kernel is about to read the frame behind whose first word the stack pointer
    // stands; where none is mapped, the thread ends by the same signal in either case.
    let context = unsafe { &mut *(frame.stack as *mut Context) };
    context::restore(context);
    // The thread keeps its alternate stack, also where it returns from a handler of another thread.
    if context.has_area() {
        context.stack[1] = altstack::REFUSED;
    }
    if context.mask & SIGSYS_BIT != 0 {
        context.mask &= !SIGSYS_BIT;
    }
    if hooks::MANAGED.get().is_some() && !confined::is_confined() {
        frame.stack = delivery::bring_home(frame.stack);
    }
    Path::SignalReturn
}

/// Scratch words of rt_sigaction: the kernel's new action, then the kept one before, and whether
/// that was replaced.
const BEFORE: usize = 4;
const REPLACED: usize = 8;

pub(crate) fn before_action(frame: &mut Frame) -> Path {
    let [_, signal, new, old, bytes, ..] = frame.saved;
    let (signal, here) = (signal as u32, &raw const *frame as u64);
    frame.scratch[REPLACED] = 0;
    if bytes != MASK_BYTES || !(1..=SIGNALS).contains(&signal) {
        return Path::Ordinary;
    }
    if signal == raw::SIGSYS {
        return own_action(frame, new, old);
    }
    let kept = &ACTIONS[signal as usize - 1];
    frame.scratch[BEFORE..REPLACED].copy_from_slice(&kept.read());
    let mut action = [0; 4];
    if new == 0 || read_words(new, &mut action, here) == Readable::No {
        return Path::Ordinary;
    }
    let has_handler = action[0] > 1;
    let kernels = match action[0] {
        2.. => delivered(signal, action),
        none if is_guarded(signal) => guarding(none),
        _ => [action[0], action[1], action[2], action[3] & !SIGSYS_BIT],
    };
    frame.scratch[..BEFORE].copy_from_slice(&kernels);
    frame.call[2] = &raw const frame.scratch as u64;
    if has_handler {
        // The kernel's action follows: none of its signals may find the handler missing.
        frame.scratch[REPLACED] = 1;
        write_undisturbed(kept, action);
    }
    Path::Ordinary
}

/// Sets an action with all signals blocked: a handler that set the same one meanwhile would wait.
fn write_undisturbed(kept: &KeptAction, action: Action) {
    if confined::is_confined() {
        return kept.write(action);
    }
    let mask = set_mask(!0);
    kept.write(action);
    set_mask(mask);
}

/// Shows the program the action that it set, or takes back a new one that the kernel refused.
pub(crate) fn after_action(frame: &mut Frame) {
    let [_, signal, _, old, bytes, ..] = frame.saved;
    let signal = signal as u32;
    if bytes != MASK_BYTES || !(1..=SIGNALS).contains(&signal) || signal == raw::SIGSYS {
        return;
    }
    let before: Action = core::array::from_fn(|index| frame.scratch[BEFORE + index]);
    match outcome(frame.call[0]) {
        Ok(_) if old != 0 => {
            let shown = old as *mut Action;
            // SAFETY: the kernel has just written an action of four words to this address.
            unsafe {
                let kernels = shown.read_unaligned();
                if let Some(none) = guarded_by(kernels) {
                    shown.write_unaligned([none, 0, 0, 0]);
                } else if kernels[0] == entry::delivery() {
                    shown.write_unaligned(before);
                }
            }
        }
        // The kernel sets the action before it finds that the old one cannot be shown.
        Ok(_) | Err(Errno(14)) => {}
        Err(_) if frame.scratch[REPLACED] != 0 => ACTIONS[signal as usize - 1].write(before),
        Err(_) => {}
    }
}

fn own_action(frame: &mut Frame, new: u64, old: u64) -> Path {
    let here = &raw const *frame as u64;
    let before = of_sigsys().read();
    let mut action = [0; 4];
    // The old action goes out first: the new one is not set where the program cannot read it.
    if (new != 0 && read_words(new, &mut action, here) == Readable::No)
        || (old != 0 && write_words(old, &before, here) == Readable::No)
    {
        return answer(frame, Err(Errno(errno::EFAULT as u16)));
    }
    if new != 0 {
        of_sigsys().write(action);
    }
    answer(frame, Ok(0))
}

/// rt_sigprocmask: takes SIGSYS out of a mask that would block it.
pub(crate) fn before_mask(frame: &mut Frame) -> Path {
    if frame.saved[1] as u32 != raw::SIG_UNBLOCK {
        strip(frame, 2);
    }
    Path::Ordinary
}

/// A call that puts the mask to which argument `place` (1 to 6) points in place of the thread's.
pub(crate) fn before_wait(frame: &mut Frame, place: usize) -> Path {
    if let Some(mask) = strip(frame, place) {
        frame.is_masked = 1;
        frame.mask_of_call = mask;
    }
    Path::Ordinary
}

/// Takes SIGSYS out of the mask that argument `place` points to; returns the mask.
fn strip(frame: &mut Frame, place: usize) -> Option<u64> {
    let pointer = frame.saved[place];
    let mut mask = [0];
    if pointer == 0 || read_words(pointer, &mut mask, &raw const *frame as u64) == Readable::No {
        return None;
    }
    frame.scratch[0] = mask[0] & !SIGSYS_BIT;
    frame.call[place] = &raw const frame.scratch as u64;
    Some(frame.scratch[0])
}

/// The same where argument 6 points to a pointer and a size.
pub(crate) fn before_nested_wait(frame: &mut Frame) -> Path {
    let here = &raw const *frame as u64;
    let mut nested = [0; 2];
    let mut mask = [0];
    if frame.saved[6] != 0
        && read_words(frame.saved[6], &mut nested, here) == Readable::Yes
        && nested[0] != 0
        && read_words(nested[0], &mut mask, here) == Readable::Yes
    {
        frame.scratch[2] = mask[0] & !SIGSYS_BIT;
        frame.scratch[0] = &raw const frame.scratch[2] as u64;
        frame.scratch[1] = nested[1];
        frame.call[6] = &raw const frame.scratch as u64;
        frame.is_masked = 1;
        frame.mask_of_call = frame.scratch[2];
    }
    Path::Ordinary
}

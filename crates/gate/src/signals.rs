//! What keeps SIGSYS the gate's: its action is answered here, and no mask may block it.
//!
//! A program reads back the action of SIGSYS and the masks of its actions as it set them. Its mask
//! of blocked signals reads without SIGSYS: a thread has no place where the gate could keep the
//! bit without thread-local storage. rt_sigtimedwait and signalfd see only what is blocked, so they
//! see no SIGSYS that others send.

use crate::call::answer;
use crate::entry::{FRAME_TO_STACK, Frame, Path};
use crate::kernel::{Errno, Readable, read_words};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use linux_raw_sys::{errno, general as raw};

/// SIGSYS in a mask.
pub(crate) const SIGSYS_BIT: u64 = 1 << (raw::SIGSYS - 1);
/// Bytes of the kernel's mask.
const MASK_BYTES: u64 = 8;
/// Byte of the mask in the context of a signal frame.
const CONTEXT_MASK: usize = 296;
/// The longest wait for another thread that sets the action of SIGSYS, in looks.
const LOOKS: u32 = 1 << 16;

/// An action as the kernel has it: handler, flags, restorer, mask.
pub(crate) type Action = [u64; 4];

/// The program's action for SIGSYS, which the kernel never sees.
pub(crate) struct KeptAction {
    /// Odd while a thread writes.
    version: AtomicU32,
    words: [AtomicU64; 4],
}

pub(crate) static KEPT: KeptAction =
    KeptAction { version: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 4] };

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

    /// Sets the action. Where a thread was interrupted while it wrote, the last writer wins.
    pub(crate) fn write(&self, action: Action) {
        let version = self.version.load(Acquire) & !1;
        self.version.store(version.wrapping_add(1), Release);
        for (kept, word) in self.words.iter().zip(action) {
            kept.store(word, Release);
        }
        self.version.store(version.wrapping_add(2), Release);
    }
}

/// Signals whose actions' masks have SIGSYS in the program's eyes.
static MASKS_WITH_SIGSYS: AtomicU64 = AtomicU64::new(0);

/// rt_sigreturn: the program may have put SIGSYS into the mask of its frame.
pub(crate) fn before_return(frame: &mut Frame) -> Path {
    let stack = &raw mut *frame as usize + FRAME_TO_STACK;
    // SAFETY: the kernel is about to read the frame at this address; where none is mapped, the
    // thread ends by the same signal in either case.
    unsafe {
        let mask = (stack + CONTEXT_MASK) as *mut u64;
        let value = mask.read_unaligned();
        if value & SIGSYS_BIT != 0 {
            mask.write_unaligned(value & !SIGSYS_BIT);
        }
    }
    Path::SignalReturn
}

pub(crate) fn before_action(frame: &mut Frame) -> Path {
    let [_, signal, new, old, bytes, ..] = frame.saved;
    let stack = frame as *const Frame as u64;
    if bytes != MASK_BYTES || !(1..=64).contains(&signal) {
        return Path::Ordinary;
    }
    if signal as u32 == raw::SIGSYS {
        return own_action(frame, new, old);
    }
    let mut action = [0; 4];
    frame.scratch[4] = MASKS_WITH_SIGSYS.load(Relaxed) >> (signal - 1) & 1;
    if new == 0 || read_words(new, &mut action, stack) == Readable::No {
        return Path::Ordinary;
    }
    frame.scratch[5] = action[3] & SIGSYS_BIT;
    action[3] &= !SIGSYS_BIT;
    frame.scratch[..4].copy_from_slice(&action);
    frame.call[2] = &raw const frame.scratch as u64;
    Path::Ordinary
}

/// Shows the program the mask that it set, and keeps the bit of the new one.
pub(crate) fn after_action(frame: &mut Frame) {
    let [_, signal, new, old, ..] = frame.saved;
    if frame.call[0] != 0 || !(1..=64).contains(&signal) || signal as u32 == raw::SIGSYS {
        return;
    }
    if old != 0 && frame.scratch[4] != 0 {
        let mask = old as *mut u64;
        // SAFETY: the kernel has just written an action of four words to this address.
        unsafe { mask.add(3).write_unaligned(mask.add(3).read_unaligned() | SIGSYS_BIT) };
    }
    if new != 0 {
        let bit = 1 << (signal - 1);
        match frame.scratch[5] {
            0 => MASKS_WITH_SIGSYS.fetch_and(!bit, Relaxed),
            _ => MASKS_WITH_SIGSYS.fetch_or(bit, Relaxed),
        };
    }
}

fn own_action(frame: &mut Frame, new: u64, old: u64) -> Path {
    let stack = &raw const *frame as u64;
    let before = KEPT.read();
    let mut action = [0; 4];
    // The old action goes out first: the new one is not set where the program cannot read it.
    let mut probe = [0; 4];
    if (new != 0 && read_words(new, &mut action, stack) == Readable::No)
        || (old != 0 && read_words(old, &mut probe, stack) == Readable::No)
    {
        return answer(frame, Err(Errno(errno::EFAULT as u16)));
    }
    if old != 0 {
        for (index, word) in before.iter().enumerate() {
            // SAFETY: the address could be read just now; the kernel would write there too.
            unsafe { (old as *mut u64).add(index).write_unaligned(*word) };
        }
    }
    if new != 0 {
        KEPT.write(action);
    }
    answer(frame, Ok(0))
}

/// Takes SIGSYS out of the mask that argument `place` (1 to 6) points to.
pub(crate) fn strip(frame: &mut Frame, place: usize) -> Path {
    let stack = &raw const *frame as u64;
    let pointer = frame.saved[place];
    let mut mask = [0];
    if pointer != 0 && read_words(pointer, &mut mask, stack) == Readable::Yes && mask[0] & SIGSYS_BIT != 0 {
        frame.scratch[0] = mask[0] & !SIGSYS_BIT;
        frame.call[place] = &raw const frame.scratch as u64;
    }
    Path::Ordinary
}

/// The same where argument 6 points to a pointer and a size.
pub(crate) fn strip_nested(frame: &mut Frame) -> Path {
    let stack = &raw const *frame as u64;
    let mut nested = [0; 2];
    let mut mask = [0];
    if frame.saved[6] != 0
        && read_words(frame.saved[6], &mut nested, stack) == Readable::Yes
        && nested[0] != 0
        && read_words(nested[0], &mut mask, stack) == Readable::Yes
        && mask[0] & SIGSYS_BIT != 0
    {
        frame.scratch[2] = mask[0] & !SIGSYS_BIT;
        frame.scratch[0] = &raw const frame.scratch[2] as u64;
        frame.scratch[1] = nested[1];
        frame.call[6] = &raw const frame.scratch as u64;
    }
    Path::Ordinary
}

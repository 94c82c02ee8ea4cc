//! New threads and processes: fork, vfork, clone, clone3 and exec.
//!
//! The dispatch is off in every new thread, so each is armed before it runs code of the program.
//! All signals are blocked meanwhile: a handler that ran in a thread which is not armed yet would
//! make calls that nothing sees.

use crate::dispatch::{arm_thread, install_handler, set_action};
use crate::entry::{Frame, Path};
use crate::kernel::{Errno, Readable, give_way, outcome, read_words, set_mask, thread_id};
use crate::signals::{Action, KEPT, SIGSYS_BIT};
use crate::{hooks, pins, rewrite};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use linux_raw_sys::general as raw;

/// Clones and vforks that may be under way at once; further ones wait.
const SLOTS: usize = 256;
const FREE: u32 = 0;
/// A slot of a clone; that of a vfork has its caller's thread id.
const TAKEN: u32 = u32::MAX;
/// The state of a slot whose owner is not written yet.
const CLAIMED: u32 = u32::MAX - 1;
/// Words of clone3's structure up to the size of the stack.
const CLONE3_WORDS: usize = 7;

/// What a child or a parent needs and cannot find on its stack. The entry reads the first three.
#[repr(C)]
struct Words {
    goes_on: u64,
    site: u64,
    r9: u64,
    mask: u64,
    /// The action of SIGSYS, which a vfork's child may change in the shared memory.
    kept: Action,
    /// The flags of the clone.
    flags: u64,
    /// The hold of the call itself.
    hold: u64,
}

/// A slot outside of all stacks.
#[repr(C)]
pub(crate) struct Slot {
    words: UnsafeCell<Words>,
    state: AtomicU32,
}

// SAFETY: whoever has moved the state from FREE has the words until it frees them.
unsafe impl Sync for Slot {}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        words: UnsafeCell::new(Words {
            goes_on: 0,
            site: 0,
            r9: 0,
            mask: 0,
            kept: [0; 4],
            flags: 0,
            hold: 0,
        }),
        state: AtomicU32::new(FREE),
    }
}; SLOTS];

/// Places in the frame's scratch words.
const MASK: usize = 0;
const SLOT: usize = 1;
const FLAGS: usize = 2;
const PREPARED: usize = 3;
const HELD: usize = 4;

/// Chooses the path of a clone, and blocks all signals until it is over.
pub(crate) fn before_clone(frame: &mut Frame) -> Path {
    frame.scratch[PREPARED] = 0;
    // A structure that cannot be read is the kernel's to refuse.
    let Some((flags, stack)) = flags_and_stack(frame) else { return Path::Ordinary };
    frame.scratch[PREPARED] = 1;
    let mask = set_mask(!0);
    frame.scratch[MASK] = mask;
    frame.scratch[SLOT] = 0;
    frame.scratch[FLAGS] = flags;
    let shares_memory = flags & raw::CLONE_VM as u64 != 0;
    if !shares_memory {
        if let Some(hook) = hooks::BEFORE_FORK.get() {
            hook();
        }
        frame.scratch[HELD] = rewrite::hold_over_fork();
        if stack == 0 {
            return Path::Ordinary;
        }
    }
    let slot = claim();
    // SAFETY: the slot is this thread's until the child, or this thread, frees it.
    unsafe {
        slot.words.get().write(Words {
            goes_on: frame.goes_on,
            site: frame.site,
            r9: frame.saved[6],
            mask,
            kept: KEPT.read(),
            flags,
            hold: pins::slot_word(frame),
        });
    }
    if stack == 0 {
        slot.state.store(thread_id(), Release);
        Path::SameStack
    } else {
        slot.state.store(TAKEN, Release);
        frame.scratch[SLOT] = &raw const *slot as u64;
        frame.call[6] = frame.scratch[SLOT];
        Path::NewStack
    }
}

fn flags_and_stack(frame: &Frame) -> Option<(u64, u64)> {
    let [number, first, second, ..] = frame.saved;
    match number as u32 {
        raw::__NR_fork => Some((0, 0)),
        raw::__NR_vfork => Some((raw::CLONE_VM as u64 | raw::CLONE_VFORK as u64, 0)),
        raw::__NR_clone => Some((first, second)),
        _ => {
            let mut words = [0; CLONE3_WORDS];
            if second < size_of_val(&words) as u64
                || read_words(first, &mut words, &raw const *frame as u64) == Readable::No
            {
                return None;
            }
            Some((words[0], words[5]))
        }
    }
}

/// Whether this is the child of a clone: its parent, in the same memory or in a copy of it, has the
/// hold of the call.
pub(crate) fn is_child(frame: &Frame) -> bool {
    let clones = [raw::__NR_clone, raw::__NR_clone3, raw::__NR_fork, raw::__NR_vfork];
    frame.call[0] == 0 && clones.contains(&(frame.saved[0] as u32))
}

/// After a clone in the parent, and in a child that has this frame: a copy of it, or, of a vfork,
/// the frame itself.
pub(crate) fn after_clone(frame: &mut Frame) {
    if frame.scratch[PREPARED] == 0 {
        return;
    }
    let flags = frame.scratch[FLAGS];
    if frame.call[0] == 0 {
        child(flags);
    } else {
        let slot = frame.scratch[SLOT];
        let shares_memory = flags & raw::CLONE_VM as u64 != 0;
        let made = outcome(frame.call[0]).is_ok();
        let waited = flags & raw::CLONE_VFORK as u64 != 0 && made;
        if slot != 0 && (!shares_memory || !made || waited) {
            // SAFETY: `before_clone` put the address of a slot of the table there.
            let slot = unsafe { &*(slot as *const Slot) };
            if waited && shares_memory {
                // SAFETY: a child frees no slot whose parent waits, and has ended with it.
                KEPT.write(unsafe { (*slot.words.get()).kept });
            }
            slot.state.store(FREE, Release);
        }
        if waited {
            // The child has left this memory: its exec, if it made one, did not return.
            pins::release_process(frame.call[0] as u32);
        }
        if !shares_memory {
            rewrite::release_after_fork(frame.scratch[HELD]);
            if let Some(hook) = hooks::FORK_PARENT.get() {
                hook(frame.call[0] as i64);
            }
        }
    }
    set_mask(frame.scratch[MASK] & !SIGSYS_BIT);
}

/// After a vfork in its parent, or after one that failed. The frame has the registers; all else
/// may be what the child left on the stack.
pub(crate) extern "C" fn after_same_stack(frame: &mut Frame) {
    let thread = thread_id();
    for slot in &TABLE {
        if slot.state.load(Acquire) != thread {
            continue;
        }
        // SAFETY: only this thread has made a slot with its number, and it is in one vfork at most.
        let words = unsafe { slot.words.get().read() };
        frame.goes_on = words.goes_on;
        // The child of a vfork leaves memory by an exec, which does not return, or by its end. A
        // failure is no process: EPERM's word would name the calls that belong to nobody.
        if let Ok(child) = outcome(frame.call[0]) {
            pins::release_process(child as u32);
        }
        pins::release_word(words.hold);
        KEPT.write(words.kept);
        slot.state.store(FREE, Release);
        set_mask(words.mask & !SIGSYS_BIT);
        return;
    }
}

/// A child that starts on a stack of its own.
pub(crate) extern "C" fn thread_started(_frame: &mut Frame, slot: &Slot) {
    // SAFETY: the parent wrote the words before the clone, and frees none that its child has.
    let words = unsafe { slot.words.get().read() };
    // A parent that waits frees the slot, which keeps what it needs afterwards.
    if words.flags & raw::CLONE_VFORK as u64 == 0 {
        slot.state.store(FREE, Release);
    }
    child(words.flags);
    set_mask(words.mask & !SIGSYS_BIT);
}

/// Arms a child before it runs code of the program.
fn child(flags: u64) {
    if flags & raw::CLONE_SIGHAND as u64 == 0 {
        // CLONE_CLEAR_SIGHAND has set the action to its default.
        let _ = install_handler();
    }
    if flags & raw::CLONE_VM as u64 == 0 {
        for slot in &TABLE {
            slot.state.store(FREE, Relaxed);
        }
        rewrite::free_after_fork();
        pins::release_everything();
        if let Some(hook) = hooks::FORK_CHILD.get() {
            hook();
        }
    } else if let Some(hook) = hooks::THREAD_CREATED.get() {
        hook();
    }
    let _ = arm_thread_if_parent_was();
}

fn arm_thread_if_parent_was() -> Result<(), Errno> {
    match DISPATCH.load(Relaxed) {
        0 => Ok(()),
        _ => arm_thread(),
    }
}

/// Whether threads are armed: 1 once the first one is.
pub(crate) static DISPATCH: AtomicU32 = AtomicU32::new(0);

fn claim() -> &'static Slot {
    loop {
        for slot in &TABLE {
            if slot.state.load(Relaxed) == FREE
                && slot.state.compare_exchange(FREE, CLAIMED, Acquire, Relaxed).is_ok()
            {
                return slot;
            }
        }
        // Each slot in use belongs to a child that has not read it yet, or to a vfork whose child
        // will exec or end.
        give_way();
    }
}

/// An ignored SIGSYS is ignored by the new image too; the kernel must know for that.
pub(crate) fn before_exec(_frame: &mut Frame) -> Path {
    if let Some(hook) = hooks::BEFORE_EXEC.get() {
        hook();
    }
    if KEPT.read()[0] == 1 {
        let _ = set_action(&[1, 0, 0, 0]);
    }
    Path::Ordinary
}

/// The exec failed: this image goes on.
pub(crate) fn after_exec() {
    if KEPT.read()[0] == 1 {
        let _ = install_handler();
    }
    if let Some(hook) = hooks::EXEC_FAILED.get() {
        hook();
    }
}

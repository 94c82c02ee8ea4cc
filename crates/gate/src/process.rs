//! New threads and processes: fork, vfork, clone, clone3 and exec; and a thread's end.
//!
//! The dispatch is off in every new thread, so each is armed before it runs code of the program.
//! All signals are blocked meanwhile: a handler that ran in a thread which is not armed yet would
//! make calls that nothing sees.

use crate::call::answer;
use crate::dispatch::{ARMED, arm_thread, install_handler};
use crate::entry::{self, Path};
use crate::kernel::{Errno, Readable, call, give_way, outcome, read_words, set_mask};
use crate::signals::{Action, SIGSYS_BIT, guarded_now, guarding, is_guarded, kernels_action, of_sigsys};
use crate::slot::{self, Frame};
use crate::touch::{self, Touched};
use crate::{altstack, confined, hooks, pins, rewrite};
use core::sync::atomic::Ordering::Relaxed;
use linux_raw_sys::{errno, general as raw};

/// Words of clone3's structure up to the size of the stack.
const CLONE3_WORDS: usize = 7;
/// Tries for a child's slot, with others let run in between, before the call fails.
const TRIES: u32 = 1 << 16;
/// ARCH_GET_FS of arch_prctl(2).
const GET_FS: u64 = 0x1003;

/// The action of a signal that is ignored.
const IGNORED: Action = [1, 0, 0, 0];
/// CLONE_CLEAR_SIGHAND.
const CLEAR_SIGHAND: u64 = 1 << 32;
/// Flags of a vfork.
const SHARING: u64 = (raw::CLONE_VM | raw::CLONE_VFORK) as u64;

/// Places in the frame's scratch words.
const PREPARED: usize = 0;
const MASK: usize = 1;
/// The address of the child's frame, where it begins on another stack.
const CHILD: usize = 2;
const FLAGS: usize = 3;
const HELD: usize = 4;
/// The action of SIGSYS, which a vfork's child may change in the shared memory.
const SIGSYS_ACTION: usize = 5;
/// What the hook before an exec has answered.
const ANSWER: usize = 0;
/// Whether signals are blocked.
const BLOCKED: usize = 9;
/// Where the child's number goes.
const CHILD_WORD: usize = 10;
/// The filters that the program had, which a vfork's child counts in the shared memory.
const FILTERS: usize = 11;

/// Chooses the path of a clone, and blocks all signals until it is over.
pub(crate) fn before_clone(frame: &mut Frame) -> Path {
    frame.scratch[PREPARED] = 0;
    // A structure that cannot be read is the kernel's to refuse.
    let Some((mut flags, stack, child_word)) = flags_and_stack(frame) else { return Path::Ordinary };
    if stack == 0 && flags & raw::CLONE_VM as u64 != 0 && slot::index_of(frame).is_none() {
        // The child would overwrite a frame on this stack: it gets a copy of the memory instead.
        match frame.saved[0] as u32 {
            raw::__NR_vfork => frame.call[0] = raw::__NR_fork as u64,
            raw::__NR_clone => frame.call[1] &= !SHARING,
            _ => return answer(frame, Err(Errno(errno::EAGAIN as u16))),
        }
        flags &= !SHARING;
    }
    if flags & SHARING == raw::CLONE_VFORK as u64 && hooks::FORK_CHILD.get().is_some() {
        // The parent would wait in the kernel for a child that waits for its parent's hook.
        match frame.saved[0] as u32 {
            raw::__NR_clone => frame.call[1] &= !u64::from(raw::CLONE_VFORK),
            _ => return answer(frame, Err(Errno(errno::ENOSYS as u16))),
        }
    }
    let mut child = None;
    if stack != 0 {
        child = claim();
        if child.is_none() {
            return answer(frame, Err(Errno(errno::EAGAIN as u16)));
        }
    }
    frame.scratch[PREPARED] = 1;
    if flags & SHARING == raw::CLONE_VM as u64 {
        rewrite::others_begin();
    }
    if flags & raw::CLONE_CHILD_CLEARTID as u64 != 0 && flags & raw::CLONE_VM as u64 != 0 {
        hooks::kernel_writes(child_word, size_of::<u32>() as u64);
    }
    block(frame);
    // A vfork's child overwrites what a handler's frame was.
    slot::forget_interruption(frame);
    frame.scratch[CHILD] = child.map_or(0, |child| child as u64);
    frame.scratch[FLAGS] = flags;
    frame.scratch[CHILD_WORD] = child_word;
    frame.scratch[FILTERS] = confined::filters();
    frame.scratch[SIGSYS_ACTION..SIGSYS_ACTION + 4].copy_from_slice(&of_sigsys().read());
    if flags & raw::CLONE_VM as u64 == 0 {
        if let Some(hook) = hooks::BEFORE_FORK.get() {
            hook();
        }
        frame.scratch[HELD] = rewrite::hold_over_fork();
    }
    match child {
        None => Path::Ordinary,
        Some(child) => {
            slot::copy(frame, child);
            frame.call[6] = child as u64;
            Path::NewStack
        }
    }
}

/// Blocks all signals, unless the program's filter may forbid that: its threads begin unarmed.
fn block(frame: &mut Frame) {
    frame.scratch[BLOCKED] = 0;
    if !confined::is_confined() {
        frame.scratch[MASK] = set_mask(!0);
        frame.scratch[BLOCKED] = 1;
    }
}

fn unblock(frame: &mut Frame) {
    if frame.scratch[BLOCKED] != 0 {
        set_mask(frame.scratch[MASK] & !SIGSYS_BIT);
    }
}

/// The flags, the stack, and the word for the child's number.
fn flags_and_stack(frame: &Frame) -> Option<(u64, u64, u64)> {
    let [number, first, second, ..] = frame.saved;
    match number as u32 {
        raw::__NR_fork => Some((0, 0, 0)),
        raw::__NR_vfork => Some((raw::CLONE_VM as u64 | raw::CLONE_VFORK as u64, 0, 0)),
        raw::__NR_clone => Some((first, second, frame.saved[4])),
        _ => {
            let mut words = [0; CLONE3_WORDS];
            if second < size_of_val(&words) as u64
                || read_words(first, &mut words, &raw const *frame as u64) == Readable::No
            {
                return None;
            }
            Some((words[0], words[5], words[2]))
        }
    }
}

/// A slot for a child. Others become free as calls end.
fn claim() -> Option<*mut Frame> {
    (0..TRIES).find_map(|_| {
        slot::claim().or_else(|| {
            give_way();
            None
        })
    })
}

/// Whether this is the child of a clone: its parent, in the same memory or in a copy of it, has the
/// hold of the call.
pub(crate) fn is_child(frame: &Frame) -> bool {
    let clones = [raw::__NR_clone, raw::__NR_clone3, raw::__NR_fork, raw::__NR_vfork];
    frame.call[0] == 0 && clones.contains(&(frame.saved[0] as u32))
}

/// After a clone in the parent, and in a child that has this frame: a copy of it, or, of a vfork,
/// the frame itself. Returns what becomes of the slot.
pub(crate) fn after_clone(frame: &mut Frame) -> entry::Slot {
    if frame.scratch[PREPARED] == 0 {
        return entry::Slot::Free;
    }
    let flags = frame.scratch[FLAGS];
    let shares_memory = flags & raw::CLONE_VM as u64 != 0;
    if frame.call[0] == 0 {
        child(frame, flags);
        unblock(frame);
        return if shares_memory { entry::Slot::Parents } else { entry::Slot::Free };
    }
    let made = outcome(frame.call[0]).is_ok();
    let child = frame.scratch[CHILD] as *mut Frame;
    if !(child.is_null() || shares_memory && made) {
        slot::free(child);
    }
    if flags & raw::CLONE_VFORK as u64 != 0 && shares_memory && made {
        // The child has left this memory, by its end or by an exec, which did not return.
        slot::free_execs_of(thread_pointer());
        confined::set_filters(frame.scratch[FILTERS]);
        of_sigsys().write(core::array::from_fn(|index| frame.scratch[SIGSYS_ACTION + index]));
    }
    if !shares_memory {
        rewrite::release_after_fork(frame.scratch[HELD]);
        if let Some(hook) = hooks::FORK_PARENT.get() {
            hook(frame.call[0] as i64);
        }
    }
    unblock(frame);
    entry::Slot::Free
}

/// A child that begins on a stack of its own, with a frame of its own.
pub(crate) extern "C" fn thread_started(frame: &mut Frame) {
    child(frame, frame.scratch[FLAGS]);
    unblock(frame);
    let word = frame.scratch[CHILD_WORD];
    if frame.scratch[FLAGS] & raw::CLONE_CHILD_SETTID as u64 != 0
        && pins::is_managed(word)
        && touch::write(word) == Touched::Yes
    {
        // The kernel has written it too, unless the page had left.
        // SAFETY: the program's word, which it has given for this.
        unsafe { (word as *mut u32).write_volatile(crate::kernel::thread_id()) };
    }
}

/// Arms a child before it runs code of the program.
fn child(frame: &mut Frame, flags: u64) {
    if flags & CLEAR_SIGHAND != 0 {
        // The kernel has set the action to its default.
        let _ = install_handler();
    }
    if flags & raw::CLONE_VM as u64 == 0 {
        rewrite::free_after_fork();
        pins::forget_others(frame);
        pins::release(frame);
        let mut area = 0;
        if !confined::is_confined() {
            area = altstack::forget_others();
        }
        slot::forget_others(frame, area);
        if let Some(hook) = hooks::FORK_CHILD.get() {
            hook();
        }
    } else {
        // A vfork's child has the alternate stack of its parent, which waits.
        if flags & raw::CLONE_VFORK as u64 == 0 && is_armed() {
            altstack::install(None);
        }
        if let Some(hook) = hooks::THREAD_CREATED.get() {
            hook();
        }
    }
    if is_armed() {
        let _ = arm_thread();
    }
}

/// Whether new threads get the dispatch, and an alternate stack of ours.
fn is_armed() -> bool {
    ARMED.load(Relaxed) != 0 && !confined::is_confined()
}

/// Before exit(2) and exit_group(2): the thread's alternate stack is for others, and nothing runs
/// in it any more.
pub(crate) extern "C" fn thread_ends() {
    if !confined::is_confined() {
        set_mask(!0);
        if let Some(hook) = hooks::THREAD_ENDS.get() {
            hook();
        }
        altstack::remove();
    }
}

/// An ignored SIGSYS is ignored by the new image too; the kernel must know for that.
pub(crate) fn before_exec(frame: &mut Frame) -> Path {
    slot::note_exec(frame, thread_pointer());
    frame.scratch[ANSWER] = hooks::BEFORE_EXEC.get().map_or(0, |hook| hook(&frame.saved));
    if of_sigsys().read()[0] == 1 {
        let _ = kernels_action(raw::SIGSYS, Some(&IGNORED));
    }
    if is_guarded(raw::SIGSEGV) && guarded_now() == Some(IGNORED[0]) {
        let _ = kernels_action(raw::SIGSEGV, Some(&IGNORED));
    }
    Path::Ordinary
}

/// The exec failed: this image goes on.
pub(crate) fn after_exec(frame: &mut Frame) {
    slot::forget_exec(frame);
    if of_sigsys().read()[0] == 1 {
        let _ = install_handler();
    }
    if is_guarded(raw::SIGSEGV) && kernels_action(raw::SIGSEGV, None).is_ok_and(|now| now[0] == IGNORED[0]) {
        let _ = kernels_action(raw::SIGSEGV, Some(&guarding(IGNORED[0])));
    }
    if let Some(hook) = hooks::EXEC_FAILED.get() {
        hook(frame.scratch[ANSWER]);
    }
}

/// What tells the calling thread, and its vfork's child, from other threads.
fn thread_pointer() -> u64 {
    let mut pointer = 0u64;
    if confined::is_confined() {
        return pointer;
    }
    // SAFETY: writes one word.
    let _ = unsafe { call(raw::__NR_arch_prctl, [GET_FS, &raw mut pointer as u64, 0, 0, 0, 0]) };
    pointer
}

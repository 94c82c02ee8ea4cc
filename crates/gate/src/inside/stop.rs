//! Makes all other threads of the process stand still for a moment.
//!
//! Each gets a signal that the C library keeps for itself, so that programs do not block it
//! (SIGSETXID of glibc and musl), and waits in its handler. A thread that stands just behind a site
//! which is about to become a jump is led to where the site's calls go on; so are those that stand
//! there below a handler of the program's, whose frames are found on their stacks.

use super::threads::{blocks_signal, for_each_thread, takes_signals};
use crate::context::{Context, RIP, RSP};
use crate::entry;
use crate::hazard::PAGE;
use crate::kernel::{Errno, Readable, call, peek_words, send, set_mask, sleep_ns, thread_id};
use crate::rewrite::{Stands, stands};
use crate::signals::{Action, SA_RESTORER, kernels_action};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use linux_raw_sys::{errno, general as raw};

/// Threads that can stand still.
pub(super) const MOST: usize = 1024;
/// The C library's own signal, with which it changes the user of all threads.
const SIGNAL: u32 = 33;
/// Rounds of waiting for threads, and the time of one: a tenth of a second.
const ROUNDS: u32 = 1000;
const ROUND_NS: u64 = 100_000;
/// Tries, with some milliseconds between, before a thread that does not stand well is given up; and
/// one that does not stand at all.
const TRIES: u32 = 20;
const TRIES_TO_STOP: u32 = 3;
/// The pause between two tries: a thread that makes a process blocks all signals until that has
/// executed its file.
const PAUSE_NS: u64 = 15_000_000;
/// Counters of frames that are changed, at most.
const COUNTERS: usize = 2 * MOST;
/// Bytes of a stack that are looked through for frames, and words at once.
const STACK_BYTES: u64 = 256 << 10;
const AT_ONCE: usize = 128;
/// Stacks of one thread that are looked through.
const STACKS: usize = 16;
/// Different restorers of the program's handlers.
const RESTORERS: usize = 8;
/// Words from a frame's restorer to its stack pointer, which the program counter follows.
const FRAME_RSP: u64 = 1 + 5 + 15;

/// Some thread does not stand still, or not where it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moves;

impl From<Errno> for Moves {
    fn from(_: Errno) -> Self {
        Moves
    }
}

/// A thread that was asked to stand still.
struct Thread {
    id: AtomicU32,
    /// Where the kernel has put its registers; 0 until it stands.
    context: AtomicU64,
}

static THREADS: [Thread; MOST] =
    [const { Thread { id: AtomicU32::new(0), context: AtomicU64::new(0) } }; MOST];
/// 1 while threads are to stand (a futex).
static STAND: AtomicU32 = AtomicU32::new(0);
/// Threads that are in the handler.
static IN_HANDLER: AtomicU32 = AtomicU32::new(0);
/// The action before.
static BEFORE: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Runs `work` while no other thread of the process does, and none stands on a byte that is about
/// to be overwritten. The caller is the only one at a time.
///
/// # Errors
/// [`Moves`]: `work` has not run.
pub(super) fn others_stand_while<T>(work: impl FnOnce() -> T) -> Result<T, Moves> {
    let mask = set_mask(!0);
    let result = with_handler(|| {
        let mut tries_to_stop = 0;
        for _ in 0..TRIES {
            if may_all_stand().is_ok() && all_have_gone_on() {
                STAND.store(1, Release);
                let stand = stop_all();
                let mut counters = Counters { count: 0 };
                if stand.is_ok() && all_stand_well(&mut counters).is_ok() {
                    let result = work();
                    counters.lead();
                    go_on();
                    return Ok(result);
                }
                go_on();
                tries_to_stop += u32::from(stand.is_err());
                if tries_to_stop == TRIES_TO_STOP {
                    break;
                }
            }
            sleep_ns(PAUSE_NS);
        }
        Err(Moves)
    });
    set_mask(mask);
    result
}

/// In the child of a fork: its parent's threads are not its own.
pub(super) fn forget_threads() {
    THREADS.iter().for_each(|thread| thread.id.store(0, Relaxed));
}

fn with_handler<T>(work: impl FnOnce() -> Result<T, Moves>) -> Result<T, Moves> {
    let flags = raw::SA_ONSTACK | raw::SA_RESTART | raw::SA_SIGINFO;
    let action: Action = [entry::address_of!(on_stop), flags as u64 | SA_RESTORER, entry::restorer(), !0];
    let mut before = kernels_action(SIGNAL, None)?;
    if before[0] == action[0] {
        // It has stayed, since a thread had not taken its signal yet.
        before = BEFORE.each_ref().map(|word| word.load(Relaxed));
    }
    BEFORE.iter().zip(before).for_each(|(word, value)| word.store(value, Relaxed));
    kernels_action(SIGNAL, Some(&action))?;
    let result = work();
    // A thread that has not taken its signal yet must not take it by the action before, which may
    // be to end the process.
    if THREADS.iter().all(|thread| thread.id.load(Relaxed) == 0) {
        let _ = kernels_action(SIGNAL, Some(&before));
    }
    result
}

/// The handler: says where the thread stands, and waits.
extern "C" fn on_stop(signal: i32, info: *mut (), context: &mut Context) {
    IN_HANDLER.fetch_add(1, Relaxed);
    let id = thread_id();
    let asked = THREADS.iter().find(|thread| thread.id.load(Acquire) == id);
    match asked {
        Some(thread) => {
            thread.context.store(&raw mut *context as u64, Release);
            while STAND.load(Acquire) == 1 {
                futex_wait(&STAND, 1, ROUND_NS * 100);
            }
            thread.context.store(0, Relaxed);
            thread.id.store(0, Release);
        }
        // The C library's own.
        None => {
            let [handler, ..] = BEFORE.each_ref().map(|word| word.load(Relaxed));
            if handler > 1 {
                // SAFETY: the handler that was installed for this signal, with SA_SIGINFO.
                let handler = unsafe {
                    core::mem::transmute::<u64, extern "C" fn(i32, *mut (), &mut Context)>(handler)
                };
                handler(signal, info, context);
            }
        }
    }
    IN_HANDLER.fetch_sub(1, Release);
}

/// Whether no thread blocks the signal now, as one does that makes another.
fn may_all_stand() -> Result<(), Moves> {
    let own = thread_id();
    for_each_thread(
        |id| {
            if id != own && takes_signals(id) && blocks_signal(id) { Err(Moves) } else { Ok(()) }
        },
    )
}

/// Asks all other threads to stand still, until no further one is found.
fn stop_all() -> Result<(), Moves> {
    loop {
        let mut new = 0;
        for_each_thread(|id| {
            new += ask(id)?;
            Ok::<_, Moves>(())
        })?;
        wait_until_all_stand()?;
        if new == 0 {
            return Ok(());
        }
    }
}

/// Asks a thread, unless it was asked; returns how many were.
fn ask(id: u32) -> Result<u32, Moves> {
    if id == thread_id() || THREADS.iter().any(|thread| thread.id.load(Relaxed) == id) {
        return Ok(0);
    }
    // A thread of the kernel's runs no code of the program; and the first thread stays as a zombie.
    if !takes_signals(id) {
        return Ok(0);
    }
    let place = THREADS.iter().find(|thread| thread.id.load(Relaxed) == 0).ok_or(Moves)?;
    place.context.store(0, Relaxed);
    place.id.store(id, Release);
    let sent = send(SIGNAL, id);
    if sent.is_ok() {
        return Ok(1);
    }
    place.id.store(0, Relaxed);
    // It has ended, or no signal can be sent.
    if sent == Err(Errno(errno::ESRCH as u16)) { Ok(0) } else { Err(Moves) }
}

fn wait_until_all_stand() -> Result<(), Moves> {
    let waits = |thread: &&Thread| thread.id.load(Acquire) != 0 && thread.context.load(Acquire) == 0;
    for round in 0..ROUNDS {
        if !THREADS.iter().any(|thread| waits(&thread)) {
            return Ok(());
        }
        if round % 64 == 63 {
            // One that has ended meanwhile will not stand.
            for thread in THREADS.iter().filter(waits) {
                if !takes_signals(thread.id.load(Relaxed)) {
                    thread.id.store(0, Relaxed);
                }
            }
        }
        sleep_ns(if round < 64 { 1000 } else { ROUND_NS });
    }
    Err(Moves)
}

/// Whether no thread is left of the try before: one that takes its signal now would not be told
/// from one that stands.
fn all_have_gone_on() -> bool {
    IN_HANDLER.load(Acquire) == 0 && THREADS.iter().all(|thread| thread.id.load(Acquire) == 0)
}

/// Lets the threads go on, and waits until they do: their places are wanted again. One that has not
/// stood yet finds nothing to wait for.
fn go_on() {
    STAND.store(0, Release);
    // SAFETY: wakes whoever waits on the word.
    let _ =
        unsafe { call(raw::__NR_futex, [&raw const STAND as u64, WAKE_PRIVATE, i32::MAX as u64, 0, 0, 0]) };
    for _ in 0..ROUNDS {
        let is_left = |thread: &Thread| thread.id.load(Acquire) != 0 && thread.context.load(Acquire) != 0;
        if IN_HANDLER.load(Acquire) == 0 && !THREADS.iter().any(is_left) {
            return;
        }
        sleep_ns(20_000);
    }
}

/// Program counters that are to be changed: where they are, and what they become. One process has
/// one such list, which whoever stops the others uses.
struct Counters {
    count: usize,
}

static CHANGED: [[AtomicU64; 2]; COUNTERS] = [const { [const { AtomicU64::new(0) }; 2] }; COUNTERS];

impl Counters {
    /// Looks at one counter, which is at this address.
    fn look(&mut self, at: u64, counter: u64) -> Result<(), Moves> {
        match stands(counter) {
            Stands::Elsewhere => Ok(()),
            Stands::Within => Err(Moves),
            Stands::Behind(goes_on) => {
                let [place, becomes] = CHANGED.get(self.count).ok_or(Moves)?;
                place.store(at, Relaxed);
                becomes.store(goes_on, Relaxed);
                self.count += 1;
                Ok(())
            }
        }
    }

    /// Changes them.
    fn lead(&self) {
        for [at, counter] in CHANGED.iter().take(self.count) {
            // SAFETY: the word of a signal's frame, of a thread that stands in a handler.
            unsafe { (at.load(Relaxed) as *mut u64).write_unaligned(counter.load(Relaxed)) };
        }
    }
}

fn all_stand_well(counters: &mut Counters) -> Result<(), Moves> {
    let restorers = Restorers::find()?;
    for thread in &THREADS {
        let context = thread.context.load(Acquire);
        if thread.id.load(Acquire) == 0 || context == 0 {
            continue;
        }
        // SAFETY: the thread waits in the handler that has put the address there.
        let context = unsafe { &*(context as *const Context) };
        let registers = &context.registers;
        counters.look(&raw const registers[RIP] as u64, registers[RIP])?;
        look_through_stacks(registers[RSP], &restorers, counters)?;
    }
    // This thread may have been interrupted too, below its own calls.
    let here = 0u64;
    look_through_stacks(&raw const here as u64, &restorers, counters)
}

/// The restorers of all handlers: a frame begins with the address of one. They are kept inverted,
/// so that no stack has a word of theirs from here.
struct Restorers([u64; RESTORERS]);

impl Restorers {
    fn find() -> Result<Self, Moves> {
        const SIGNALS: u32 = 64;
        let mut found = Restorers([0; RESTORERS]);
        for signal in 1..=SIGNALS {
            // Also where there is no handler any more: one may still run.
            let Ok([_, flags, restorer, _]) = kernels_action(signal, None) else { continue };
            if flags & SA_RESTORER != 0 && signal != SIGNAL {
                found.add(restorer)?;
            }
        }
        found.add(BEFORE[2].load(Relaxed))?;
        Ok(found)
    }

    fn add(&mut self, restorer: u64) -> Result<(), Moves> {
        if restorer != 0 && !self.has(restorer) {
            *self.0.iter_mut().find(|place| **place == 0).ok_or(Moves)? = !restorer;
        }
        Ok(())
    }

    fn has(&self, word: u64) -> bool {
        word != u64::MAX && self.0.contains(&!word)
    }
}

/// Stacks on which frames are looked for: of a thread, and those that its handlers have
/// interrupted.
struct Stacks {
    from: [u64; STACKS],
    count: usize,
}

impl Stacks {
    /// Adds a stack, unless the one at `this` is looked through up to there, or it was added
    /// before.
    fn add(&mut self, stack: u64, this: u64) -> Result<(), Moves> {
        let stack = stack & !7;
        if stack.wrapping_sub(this) < STACK_BYTES || self.from[..self.count].contains(&stack) {
            return Ok(());
        }
        *self.from.get_mut(self.count).ok_or(Moves)? = stack;
        self.count += 1;
        Ok(())
    }
}

/// Looks at the frames of handlers on a stack, from this address up, and on the stacks that they
/// have interrupted. Words that only look like a frame do no harm: what they say of a counter is
/// changed as a frame's would be, and nobody reads it.
fn look_through_stacks(from: u64, restorers: &Restorers, counters: &mut Counters) -> Result<(), Moves> {
    let mut stacks = Stacks { from: [0; STACKS], count: 0 };
    stacks.add(from, u64::MAX)?;
    let mut next = 0;
    while next < stacks.count {
        let start = stacks.from[next];
        look_through_stack(start, restorers, counters, &mut stacks)?;
        next += 1;
    }
    Ok(())
}

fn look_through_stack(
    start: u64,
    restorers: &Restorers,
    counters: &mut Counters,
    stacks: &mut Stacks,
) -> Result<(), Moves> {
    let mut words = [0; AT_ONCE];
    let mut at = start;
    while at < start.saturating_add(STACK_BYTES) {
        // Up to the end of a page: behind it there may be nothing.
        let count = ((PAGE - at % PAGE) / 8).min(AT_ONCE as u64) as usize;
        let part = &mut words[..count];
        if peek_words(at, part).map_err(|_| Moves)? == Readable::No {
            return Ok(());
        }
        for (index, word) in part.iter().enumerate() {
            if restorers.has(*word) {
                look_at_frame(at + index as u64 * 8, start, counters, stacks)?;
            }
        }
        at += count as u64 * 8;
    }
    Ok(())
}

/// Looks at what may be a frame.
fn look_at_frame(at: u64, start: u64, counters: &mut Counters, stacks: &mut Stacks) -> Result<(), Moves> {
    /// The selector of user code, in the lower half of a word.
    const CODE: u64 = 0x33;
    // The stack pointer, the program counter, the flags and the selectors.
    let mut said = [0; 4];
    let place = at + FRAME_RSP * 8;
    if peek_words(place, &mut said).map_err(|_| Moves)? == Readable::No || said[3] & 0xffff != CODE {
        return Ok(());
    }
    counters.look(place + 8, said[1])?;
    stacks.add(said[0], start)
}

const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;

fn futex_wait(word: &AtomicU32, value: u32, ns: u64) {
    let time = [0, ns];
    let arguments = [&raw const *word as u64, WAIT_PRIVATE, value as u64, time.as_ptr() as u64, 0, 0];
    // SAFETY: reads the word and a time.
    let _ = unsafe { call(raw::__NR_futex, arguments) };
}

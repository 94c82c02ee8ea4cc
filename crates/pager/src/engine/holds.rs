//! What system calls use, where the kernel reports no faults of theirs ([`CallFaults::Held`]): the
//! gate asks which memory may be away, touches it and holds it; the pager announces what it is
//! about to take, to protect or to register, and leaves out what calls hold.
//!
//! A call that uses memory which is not registered yet holds it too: if it became registered while
//! the call runs, a page that was never touched would be missing all at once.

use crate::engine::Engine;
use crate::engine::demand::Step;
use crate::engine::requests::Request;
use crate::engine::threads::Life;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::processor;
use crate::kernel::ranges::Range;
use crate::units::{ADDRESS_END, PAGE};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use folioswap_group::decisions::CallFaults;
use linux_raw_sys::general as raw;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Bytes that are announced at once, at most: the count of pages in a word of the gate's ends at
/// 64 GiB.
const ANNOUNCED_BYTES_MAX: usize = 32 << 30;

/// Looks of a thread for an event that it has caused, or for a look of the evictor's, and the time
/// between two.
const LOOKS: u32 = 10_000;
const LOOK_NS: u64 = 100_000;

/// Bytes that are brought in together.
const POPULATED_AT_ONCE: usize = 256 << 10;

/// Looks at a set that is being changed before a thread sleeps.
const SPINS: u32 = 4096;

/// Tries to bring in memory that leaves again at once.
const POPULATE_TRIES: u32 = 64;

/// Who announces: each has an announcement of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The holder of the move lock.
    Mover,
    /// The thread that protects shared memory: the evictor, or the handler of a new child.
    Protector,
}

/// The gate, as the pager asks it. Addresses are those of whole pages.
pub struct Gate {
    /// Announces a range of at most 64 GiB; no further call gets to use it until `withdraw`.
    pub announce: fn(By, Range),
    /// Calls the function with the parts of the announced range that calls hold, in no order and
    /// perhaps twice.
    pub for_held: fn(Range, &mut dyn FnMut(Range)),
    /// Ends the announcement.
    pub withdraw: fn(By),
}

/// Memory that is about to be taken, protected or registered, until this is dropped.
pub(crate) struct Announced {
    whole: Range,
    by: By,
    /// None where no calls hold anything.
    gate: Option<&'static Gate>,
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(gate) = self.gate {
            (gate.withdraw)(self.by);
        }
    }
}

impl Announced {
    /// Calls `each` with the parts that system calls hold, in no order and perhaps twice.
    pub(crate) fn for_held(&self, mut each: impl FnMut(Range)) {
        if let Some(gate) = self.gate {
            (gate.for_held)(self.whole, &mut each);
        }
    }

    /// Calls `each` with the parts that no system call holds, ascending.
    pub(crate) fn for_free(&self, mut each: impl FnMut(Range)) {
        let mut from = self.whole.start;
        while from < self.whole.end {
            let mut next = Range { start: self.whole.end, end: self.whole.end };
            self.for_held(|held| {
                if held.end > from && held.start < next.start {
                    next = held;
                }
            });
            if from < next.start {
                each(Range { start: from, end: next.start });
            }
            from = next.end;
        }
    }
}

/// Memory side by side that is managed, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whether pages of it may be away.
    pub is_managed: bool,
    /// The address behind it.
    pub end: usize,
}

/// How memory is brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// As by a read of each page.
    Read,
    /// As by a write to each page.
    Write,
}

impl Populate {
    /// What this advice of madvise(2) demands, if it is one of these.
    pub fn of_advice(advice: u32) -> Option<Self> {
        match advice {
            raw::MADV_POPULATE_READ => Some(Populate::Read),
            raw::MADV_POPULATE_WRITE => Some(Populate::Write),
            _ => None,
        }
    }

    fn advice(self) -> Advice {
        match self {
            Populate::Read => Advice::LinuxPopulateRead,
            Populate::Write => Advice::LinuxPopulateWrite,
        }
    }
}

impl Engine {
    /// Whether system calls hold what they use.
    pub fn calls_hold(&self) -> bool {
        if self.embedded.is_on() {
            return self.gate().is_some();
        }
        self.decisions().call_faults() == CallFaults::Held
    }

    /// The limit of the group, in bytes. For a process that is a member.
    pub fn limit_bytes(&self) -> u64 {
        self.decisions().limit_bytes()
    }

    /// Announces a range of whole pages, as far as it is announced at once. Costs a load where no
    /// calls hold anything.
    pub(crate) fn announce_range(&self, by: By, start: usize, end: usize) -> Announced {
        let whole = Range { start, end: end.min(start + ANNOUNCED_BYTES_MAX) };
        let gate = self.gate().filter(|_| start < whole.end && self.calls_hold());
        if let Some(gate) = gate {
            (gate.announce)(by, whole);
        }
        Announced { whole, by, gate }
    }

    /// Tells the engine of the gate that stands before the program's calls. Before the pager
    /// begins.
    pub fn stand_behind(&self, gate: &'static Gate) {
        self.mappings.gate.store(core::ptr::from_ref(gate).cast_mut(), Release);
    }

    fn gate(&self) -> Option<&'static Gate> {
        // SAFETY: the pointer is null, or was set to a gate that is there for ever.
        unsafe { self.mappings.gate.load(Acquire).as_ref() }
    }

    /// Calls `each` with the parts of a range that no system call holds; none gets to use one
    /// meanwhile.
    pub(crate) fn for_free(&self, by: By, start: usize, end: usize, mut each: impl FnMut(Range)) {
        let mut from = start;
        while from < end {
            let announced = self.announce_range(by, from, end);
            announced.for_free(&mut each);
            from = announced.whole.end;
        }
    }

    /// Whether the page at an address is managed, and up to where that is so. Threads of the
    /// program. Cost: some 30 ns.
    pub fn managed_from(&self, address: usize) -> Run {
        // The thread may be one of real-time priority, on the pager's processor.
        let pause = |look: u32| {
            if look < SPINS {
                core::hint::spin_loop();
            } else {
                let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 50_000 });
            }
        };
        match self.mappings.registered.around(address, pause) {
            Some(range) if range.start <= address => Run { is_managed: true, end: range.end },
            Some(range) => Run { is_managed: false, end: range.start },
            None => Run { is_managed: false, end: ADDRESS_END },
        }
    }

    /// Returns when the pager knows where a mapping lies that this thread has just moved, and how
    /// long it is: until then a system call there would not be held. Threads of the program.
    pub fn mapping_has_moved(&self, to: usize, bytes: usize, new_bytes: usize) {
        if !self.is_ours() || self.life() != Life::Running || !self.calls_hold() {
            return;
        }
        // The event was read before the call returned; it may still be applied.
        self.wait_for_change(&self.mappings.events_wait, 1);
        let end = (to + new_bytes).next_multiple_of(PAGE);
        if new_bytes <= bytes || !self.managed_from(to).is_managed {
            return;
        }
        // What the mapping has grown by is registered, and nobody has been told.
        for _ in 0..LOOKS {
            let is_known = self.managed_from(to).end >= end;
            if is_known || self.life() != Life::Running || self.demand.now().step() == Step::Closed {
                return;
            }
            self.request(Request::Grown, to, end);
            self.wait_for_pager();
        }
    }

    /// Adds what a managed mapping has grown by to the set, where the kernel has it registered.
    pub(crate) fn learn_grown(&self, start: usize, end: usize) {
        let _events_wait = self.locks.moves.lock();
        let registered = &self.mappings.registered;
        let from = registered.next_hole(start);
        if from < end && self.userfault().check_registered(from) == Ok(()) {
            let _ = registered.insert(from, end);
        }
    }

    /// Waits as long as a word is this, for a second at most.
    fn wait_for_change(&self, word: &AtomicU32, is: u32) {
        for _ in 0..LOOKS {
            if word.load(Acquire) != is || self.life() != Life::Running {
                return;
            }
            futex::wait(word, is, LOOK_NS, Sharing::Private);
        }
    }

    /// Brings in a range of the program, as madvise(2) does by MADV_POPULATE_READ or
    /// MADV_POPULATE_WRITE, also where the kernel reports no faults of system calls. Threads of the
    /// program.
    ///
    /// # Errors
    /// madvise(2)'s.
    pub fn populate(&self, start: usize, end: usize, how: Populate) -> Result<(), Errno> {
        let populate = |start: usize, end: usize| {
            // SAFETY: bringing pages in changes no contents.
            unsafe { madvise(start as *mut _, end - start, how.advice()) }
        };
        if self.life() != Life::Running || !self.calls_hold() {
            return populate(start, end);
        }
        // All of it may be more than fits into memory at once.
        let mut from = start;
        loop {
            let until = end.min(from.saturating_add(POPULATED_AT_ONCE));
            let mut outcome = populate(from, until);
            for _ in 0..POPULATE_TRIES {
                // A page may leave again before the kernel looks.
                if outcome != Err(Errno::FAULT) {
                    break;
                }
                self.touch_managed(from, until, how);
                outcome = populate(from, until);
            }
            outcome?;
            from = until;
            if from >= end {
                return Ok(());
            }
        }
    }

    /// Touches the managed pages of a range.
    fn touch_managed(&self, start: usize, end: usize, how: Populate) {
        let mut at = start & !(PAGE - 1);
        while at < end {
            let Run { is_managed, end: until } = self.managed_from(at);
            let until = until.min(end.next_multiple_of(PAGE));
            if is_managed {
                for page in (at..until).step_by(PAGE) {
                    // SAFETY: the page is managed, so a touch of it is served; where the program
                    // may not touch it, the program has asked for what it may not have.
                    unsafe {
                        match how {
                            Populate::Write => processor::touch_byte(page),
                            Populate::Read => processor::read_byte(page),
                        }
                    }
                }
            }
            at = until;
        }
    }

    /// Says that events are about to be read, and are not applied yet. Handler.
    pub(crate) fn events_come(&self) {
        self.mappings.events_wait.store(1, Release);
    }

    /// Says that all events that were read are applied. Handler.
    pub(crate) fn events_are_applied(&self) {
        self.mappings.events_wait.store(0, Release);
    }
}

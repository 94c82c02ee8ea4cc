//! The handler, the pager's first thread: reads the userfaultfd, serves faults, and keeps the page
//! words true to the program's changes of its mappings.
//!
//! The handler never waits for the evictor except for memory (and then goes on reading events),
//! never calls into the C library, and never advises or unmaps memory that it serves: such a call
//! would wait for its own reader.

use crate::engine::Engine;
use crate::engine::due::Due;
use crate::engine::join::{join, leave};
use crate::engine::placement::HandlerPlacement;
use crate::fault::ahead::Trigger;
use crate::fault::buffers::Buffers;
use crate::fault::frozen::Whose;
use crate::fault::queue::{Attempt, Fault, FaultQueue, Overflow};
use crate::fault::raw_children::RawChildren;
use crate::fault::reads::Reads;
use crate::fault::swap_in::Ceiling;
use crate::fault::unmapped::Unmapped;
use crate::kernel::thread::{self, Place};
use crate::kernel::ticks::Ticks;
use crate::kernel::uffd::{Access, Event, Message};
use crate::kernel::{
    process::{self, Allowance},
    rights, sys,
};
use crate::units::{ADDRESS_END, BlockAddr, PageAddr};
use core::ops::Range;
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_devices::Scratch;
use folioswap_group::counters::Counter;
use folioswap_group::nested::Bound;
use folioswap_policy::reclaim::watermarks::Watermarks;
use folioswap_policy::reclaim::workingset::Refaults;
use rustix::io::Errno;

const MESSAGES: usize = 16;

/// No page.
const NOWHERE: Range<PageAddr> = PageAddr::containing(0)..PageAddr::containing(0);

/// How many other faults may interrupt one window. Each of them waits for at most one piece.
pub(crate) const INTERRUPTIONS_MAX: u32 = 8;

/// The time between two faults that are served in a fork freeze while the group is at its limit.
const FREEZE_FAULT_NS: u64 = 1_000_000;

/// The same on the brink.
const FREEZE_FAULT_BRINK_NS: u64 = 10_000_000;

/// The time between two looks at the program of a handler that has no time to wait for its end.
const PROGRAM_LOOK_NS: u64 = 20_000_000;

/// The handler's own state. Losing it at a fork does no harm, except that faults in the queue
/// belong to threads that a child does not have.
pub(crate) struct Handler {
    pub(crate) engine: &'static Engine,
    pub(crate) scratch: Scratch,
    pub(crate) buffers: &'static mut Buffers,
    pub(crate) raw_children: RawChildren,
    pub(crate) reads: Reads,
    /// The swap-in that is under way.
    pub(crate) swapin: SwapinState,
    /// The walk of the program that is being followed.
    pub(crate) walk: Walk,
    pub(crate) placement: HandlerPlacement,
    pub(crate) queue: FaultQueue,
    pub(crate) unmapped: Unmapped,
    pub(crate) holds: Holds,
    pub(crate) ticks: Ticks,
    /// Pages that come until the next row of the evictor's plan leaves.
    pub(crate) pages_to_next_row: u64,
    freeze_next_ns: u64,
    /// When a handler that is busy looks whether the program has ended.
    program_due: Due,
    /// Ranges that the program serves itself, at the last round.
    pub(crate) given_up_seen: u32,
}

/// State of the swap-in that is under way, and of the round that it is in.
pub(crate) struct SwapinState {
    pub(crate) round_began_ns: u64,
    /// How long the faults of this round have waited for a read in earlier rounds.
    pub(crate) waited_ns: u64,
    pub(crate) refaults: Refaults,
    /// Other faults that were served in the middle of the window that is being brought.
    pub(crate) interruptions: Interruptions,
}

/// State of a walk that gets blocks ahead of its faults (`ahead.rs`).
pub(crate) struct Walk {
    /// The latest block for which there was no huge page ahead of a walk.
    pub(crate) missed_ahead: Option<BlockAddr>,
    /// The block of a walk at which it gets the next ones.
    pub(crate) trigger: Option<Trigger>,
}

/// Whether faults in the queue wait although the handler has nothing else to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The faults in the queue are served at once.
    Nothing,
    /// A fork freeze is under way, and there is no memory.
    UntilLater,
    /// All faults in the queue wait for reads that are under way.
    UntilRead,
}

/// Faults that were served in the middle of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruptions {
    /// This many, of [`INTERRUPTIONS_MAX`].
    Few(u32),
    /// One is being served: it is not interrupted itself, and brings little.
    None,
}

/// The handler thread.
///
/// # Safety
/// `argument` is the engine's address; this is the only handler of the process.
pub(crate) unsafe extern "C" fn run(argument: usize) -> ! {
    // SAFETY: by contract.
    let engine: &'static Engine = unsafe { &*(argument as *const Engine) };
    sys::name_thread(c"pager-handler");
    process::leave_session();
    let allowance = process::have_descriptors();
    rights::see_no_frames();
    engine.threads.handler.store(sys::gettid(), Release);
    sys::raise_priority();
    // The descriptor table is a copy of the program's: all of it is closed, or pipes of the program
    // would never see their end.
    sys::close_range(0, u32::MAX);
    engine.find_program();
    // The welcome comes with descriptors that are closed again, which leaves room for the program's
    // where it allows itself only a handful.
    let joined = join(engine).and_then(|()| engine.attach_to_program());
    let ready =
        joined.and_then(|()| engine.fork.renew_token()).and_then(|()| engine.prepare_confinement(allowance));
    if let Err(errno) = ready {
        leave(engine, errno);
    }
    // A forked child inherits its parent's keys, and no locks of memory.
    engine.space.keys().lock_again();
    let buffers = Buffers::of(engine);
    let Some(buffers) = buffers else { leave(engine, Errno::NOMEM) };
    let mut handler = Handler::new(engine, buffers);
    if !engine.fork.inherited_token().is_none() {
        if let Err(errno) = handler.apply_inherited() {
            leave(engine, errno);
        }
        engine.protect_inherited();
        // A thread that waits for a fault that the parent read but did not serve looks again.
        engine.userfault().wake(0x1000, ADDRESS_END - 0x2000);
    }
    if allowance == Allowance::Plenty {
        handler.reads.prepare(engine);
    }
    // SAFETY: the evictor's stack is mapped for ever and used by no other thread of this process.
    let evictor = unsafe {
        thread::spawn(
            engine.threads.evictor_stack.load(Relaxed) as *mut u8,
            crate::evict::evictor::run,
            argument,
            Place::Beside,
        )
    };
    match evictor {
        Ok(_) => engine.confine(),
        Err(errno) => {
            engine.report_failure(errno);
            engine.confine_alone();
        }
    }
    loop {
        handler.round();
    }
}

impl Handler {
    /// The handler of the calling thread, with nothing to do yet.
    pub(crate) fn new(engine: &'static Engine, buffers: &'static mut Buffers) -> Self {
        let mut placement = HandlerPlacement::new(engine.followed_program());
        if engine.embedded.is_on() {
            // There is no supervisor.
            placement.expect_no_vigil();
        }
        Handler {
            engine,
            scratch: Scratch::new(),
            buffers,
            raw_children: RawChildren::new(),
            reads: Reads::new(),
            swapin: SwapinState {
                round_began_ns: 0,
                waited_ns: 0,
                refaults: Refaults::default(),
                interruptions: Interruptions::Few(0),
            },
            walk: Walk { missed_ahead: None, trigger: None },
            placement,
            queue: FaultQueue::new(),
            unmapped: Unmapped::new(),
            holds: Holds::Nothing,
            ticks: Ticks::default(),
            pages_to_next_row: 0,
            freeze_next_ns: 0,
            program_due: Due::at_once(),
            given_up_seen: engine.demand.given_up(),
        }
    }

    /// Waits for messages and deals with them.
    pub(crate) fn round(&mut self) {
        let engine = self.engine;
        if engine.fork.is_thawed() && engine.fork.is_preparing() {
            // The forking thread needs our lock.
            engine.fork.pause();
        } else if self.queue.len() == 0 || self.holds != Holds::Nothing {
            self.wait();
        }
        engine.make_way_for_evictor();
        let _snapshots_wait = engine.locks.serve.lock();
        self.read_messages();
        self.learn_what_was_given_up();
        self.reads.collect();
        let begun = sys::now_ns();
        self.swapin.round_began_ns = begun;
        if self.program_due.take(begun, PROGRAM_LOOK_NS) {
            engine.end_with_program();
        }
        let (mut served, mut read) = (0, 0);
        while self.queue.len() > read && engine.fork.is_thawed() {
            let fault = self.take_fault();
            let may_wait = engine.is_at_limit() && self.needs_memory(&fault);
            if self.is_being_read(&fault) {
                self.queue_fault(Fault { attempt: Attempt::AfterRead, ..fault });
                read += 1;
            } else if !may_wait || !self.wait_for_memory(fault.thread) {
                let told = &engine.threads.faulting_cpu;
                if let Some(cpu) = self.placement.follow(fault.thread, told, begun)
                    && !self.reads.several_threads_fault()
                {
                    engine.ask_for_vigil(cpu);
                }
                self.serve_in_round(fault);
                served += 1;
            } else {
                self.queue_fault(fault);
                break;
            }
        }
        self.holds = if read > 0 && self.all_wait_for_reads() { Holds::UntilRead } else { Holds::Nothing };
        if !engine.fork.is_thawed() {
            self.reads.forget_all();
            self.holds = Holds::Nothing;
            for _ in 0..self.queue.len() {
                let fault = self.take_fault();
                if self.may_be_served_in_freeze(&fault) {
                    self.serve_frozen(engine.userfault(), fault, Whose::Parent);
                } else {
                    self.holds = Holds::UntilLater;
                    self.queue_fault(fault);
                }
            }
            self.serve_forked_child();
        }
        if engine.fork.is_thawed() && self.holds == Holds::UntilLater {
            self.holds = Holds::Nothing;
        }
        self.raw_children_round();
        if served > 0 {
            let now = sys::now_ns();
            engine.figures().add(Counter::FaultNanoseconds, now - begun);
            self.placement.note_served(now);
        }
        self.take_out_planned();
    }

    fn serve_in_round(&mut self, fault: Fault) {
        let engine = self.engine;
        self.serve(fault);
        let took_ns = sys::now_ns().saturating_sub(fault.since_ns);
        engine.note_latency(fault.since_ns, took_ns, fault.thread);
        if engine.embedded.is_on() {
            engine.embedded.latency.add(took_ns);
        }
    }

    /// Reads the messages that are there. Events are processed at once, under the move lock, so
    /// that no move comes between the reading and the processing; faults are queued.
    pub(crate) fn read_messages(&mut self) {
        let engine = self.engine;
        loop {
            let mut messages = [Message::EMPTY; MESSAGES];
            let _moves_wait = engine.locks.moves.lock();
            engine.events_come();
            let count = self.read_some(engine.userfault(), &mut messages);
            let since_ns = if count > 0 { sys::now_ns() } else { 0 };
            for message in &messages[..count] {
                match message.event() {
                    Event::Fault { address, access, thread } => {
                        self.reads.note_thread(thread);
                        let page = PageAddr::containing(address);
                        self.queue_fault(self.fault_read_now(page, access, thread, since_ns));
                    }
                    event if engine.fork.is_thawed() => self.process(event),
                    event => self.postpone(event),
                }
            }
            if engine.fork.log.len() == 0 {
                engine.events_are_applied();
            }
            if count < MESSAGES {
                return;
            }
        }
    }

    /// Whether a fault waits besides the one that is being served, or a fork.
    pub(crate) fn has_more_to_do(&self) -> bool {
        self.others_wait(&NOWHERE)
    }

    /// The same, except for faults in this range that may wait.
    pub(crate) fn others_wait(&self, but_for: &Range<PageAddr>) -> bool {
        let is_other = |fault: &Fault| !but_for.contains(&fault.page) || self.is_urgent(fault.thread);
        self.queue.find(is_other).is_some() || self.fork_waits()
    }

    /// Whether a fork is under way.
    fn fork_waits(&self) -> bool {
        self.engine.fork.is_preparing() || !self.engine.fork.is_thawed()
    }

    /// Called between two pieces of a window of several, which lies in this range: serves the
    /// faults that wait for anything else, with no more than 64 KiB each. Returns false if a fault
    /// still waits that cannot be served now, or if the window has been interrupted often enough. A
    /// fault that would wait at the limit in any case waits for a window that may exceed the limit.
    pub(crate) fn serve_others(&mut self, but_for: &Range<PageAddr>, room: Ceiling) -> bool {
        let waits_anyway = |handler: &Self, fault: &Fault| {
            room == Ceiling::Beyond
                && handler.engine.is_at_limit()
                && !handler.is_urgent(fault.thread)
                && handler.needs_memory(fault)
        };
        let is_other =
            |handler: &Self, fault: &Fault| !but_for.contains(&fault.page) && !waits_anyway(handler, fault);
        while let Some(position) = self.queue.find(|fault| is_other(self, fault)) {
            let Interruptions::Few(before) = self.swapin.interruptions else { return false };
            let is_urgent = self.position_of_urgent().is_some();
            let ends_at_limit = room == Ceiling::BelowLimit && self.engine.is_at_limit();
            if is_urgent || self.fork_waits() || ends_at_limit || before == INTERRUPTIONS_MAX {
                return false;
            }
            let fault = self.take_fault_at(position);
            if self.is_being_read(&fault) {
                self.queue_fault(Fault { attempt: Attempt::AfterRead, ..fault });
                return false;
            }
            self.swapin.interruptions = Interruptions::None;
            self.serve_in_round(fault);
            self.swapin.interruptions = Interruptions::Few(before + 1);
        }
        !self.fork_waits()
    }

    /// A fault that is read now, with nothing of it looked at yet.
    pub(crate) fn fault_read_now(&self, page: PageAddr, access: Access, thread: u32, since_ns: u64) -> Fault {
        Fault { page, access, thread, attempt: Attempt::First, since_ns, read_at: self.unmapped.now() }
    }

    pub(crate) fn queue_fault(&mut self, fault: Fault) {
        self.queue.push(fault);
    }

    /// Takes the next fault. A fault of the evictor or of a forking thread goes before all others,
    /// since these may wait for the memory that such a thread is about to free.
    fn take_fault(&mut self) -> Fault {
        self.take_fault_at(self.position_of_urgent().unwrap_or(self.queue.oldest()))
    }

    fn take_fault_at(&mut self, position: usize) -> Fault {
        let fault = self.queue.take(position);
        if self.queue.take_overflow() == Overflow::Forgot {
            self.engine.userfault().wake(0x1000, ADDRESS_END - 0x2000);
        }
        fault
    }

    /// The position in the queue of a fault that goes before all others.
    pub(crate) fn position_of_urgent(&self) -> Option<usize> {
        self.queue.find(|fault| self.is_urgent(fault.thread))
    }

    /// Whether each fault in the queue has been looked at, and a read for it is under way.
    fn all_wait_for_reads(&self) -> bool {
        self.queue.all(|fault| fault.attempt == Attempt::AfterRead)
    }

    /// Whether this thread never waits for memory: the evictor frees memory, and a forking thread
    /// stands in the evictor's way.
    pub(crate) fn is_urgent(&self, thread: u32) -> bool {
        let engine = self.engine;
        thread == engine.threads.evictor.load(Relaxed) || thread == engine.fork.forking_thread()
    }

    /// Whether this fault may be served in a fork freeze. Nothing can be freed in it, and the
    /// forking thread may wait for a lock that a faulting thread holds: at the limit the faults of
    /// other threads are served, but so slowly that their memory does not matter.
    fn may_be_served_in_freeze(&mut self, fault: &Fault) -> bool {
        let engine = self.engine;
        let Bound { limit, charge, .. } = engine.bound();
        let marks = Watermarks::of(limit);
        if self.is_urgent(fault.thread) || charge < marks.limit || !self.needs_memory(fault) {
            return true;
        }
        let now = sys::now_ns();
        let due = now >= self.freeze_next_ns;
        if due {
            self.freeze_next_ns =
                now + if charge < marks.brink { FREEZE_FAULT_NS } else { FREEZE_FAULT_BRINK_NS };
        }
        due
    }
}

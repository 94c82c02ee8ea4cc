//! The handler's part of a fork: during the fork freeze it serves parent and child without changing
//! anything, and thaws the engine when the child is on its own. In the child it applies the events
//! that the freeze held back.

use crate::engine::fork_state::THAWED;
use crate::fault::frozen::Whose;
use crate::fault::handler::Handler;
use crate::fault::queue::Fault;
use crate::kernel::sys;
use crate::kernel::uffd::{Access, Event, Message, Stopped, Userfault};
use crate::units::{PAGE, PageAddr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_devices::Page;
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{Ending, Kind};
use folioswap_policy::page::PageState;
use folioswap_space::space::Movers;
use rustix::io::Errno;

impl Handler {
    /// Prepares the child's engine, whose copy has just become its own: applies the log, removes
    /// the memory that the child does not inherit, and shares the clusters of the file device with
    /// their second owner.
    ///
    /// # Errors
    /// Those of [`Engine::adopt_mappings`]; the child must not go on.
    pub(crate) fn apply_inherited(&mut self) -> Result<(), Errno> {
        let engine = self.engine;
        engine.space.file_space().share_all();
        engine.forget_raw_children();
        let _moves_wait = engine.locks.moves.lock();
        self.process_log();
        engine.fork.log.clear();
        engine.apply_requests();
        // Memory that was not inherited at all (`dc`) is in no list of the child's, and falls to
        // the next step.
        self.for_not_inherited(|range| engine.remove_pages(range.start, range.end));
        engine.adopt_mappings()
    }

    /// Applies the events that the freeze held back. The caller holds the move lock.
    fn process_log(&mut self) {
        let log = &self.engine.fork.log;
        for index in 0..log.len() {
            self.process(log.event(index));
        }
    }

    /// Logs an event of a fork freeze. The caller holds the move lock.
    pub(crate) fn postpone(&mut self, event: Event) {
        if let Event::Unmap { start, end } = event {
            // That is true at once, whatever the words say until the thaw.
            self.unmapped.note(start, end);
        }
        let fork = &self.engine.fork;
        match event {
            Event::Fork { child } if fork.child_seen.load(Relaxed) == 0 => {
                fork.child_userfault.store(child, Relaxed);
                fork.log.log_fork();
                self.engine.tell(Kind::Forked, fork.token.load().message_words(), Some(child));
                fork.gain_relative(self.engine);
                // The forking thread may go on only from here: it might end this process at once.
                fork.child_seen.store(1, Release);
            }
            Event::Fork { child } => self.raw_children.wait(self.engine, child),
            event if fork.log.push(event).is_ok() => {}
            // These are more events than threads can have made in one fork: no sane program does
            // this.
            _ => self.engine.end(Ending::TooMany, None),
        }
    }

    /// Serves a fault without changing anything that a snapshot contains.
    pub(crate) fn serve_frozen(&mut self, userfault: Userfault, fault: Fault, whose: Whose) {
        let engine = self.engine;
        let (page, address) = (fault.page, fault.page.raw());
        loop {
            // Messages may have been read since the fault was, by the last attempt too.
            if whose == Whose::Parent && self.is_gone(&fault) {
                userfault.wake(address, PAGE);
                return;
            }
            if fault.access == Access::WriteProtected {
                // The word stays as it is, even if it says that the page is clean: the evictor asks
                // the kernel before it believes that, in the parent as in the child.
                engine.figures().add(Counter::WriteProtectFaults, 1);
                if engine.is_shared(page) {
                    engine.charge_own_pages(engine.cost_of_own_pages(address, page.end()));
                }
                if userfault.unprotect(address, PAGE) == Err(Errno::AGAIN) && whose == Whose::Parent {
                    self.read_messages();
                }
                userfault.wake(address, PAGE);
                return;
            }
            let fork = &engine.fork;
            let limit = match whose {
                Whose::Parent => fork.log.len(),
                Whose::Child => fork.log.len_at_fork(),
            };
            let word = fork
                .log
                .before(address, limit)
                .map(PageAddr::containing)
                .and_then(|page| Some((page, engine.table.block(page)?.word(page.index()))));
            let result = match word.map(|(page, word)| (page, word.state())) {
                // A clean page is present: the copy will find it there (or stand for it).
                Some((_, PageState::Stored(entry) | PageState::Clean(entry, _))) => {
                    let (decoder, buffer) = self.buffers.page_to_read(0);
                    if let Err(why) = engine.space.read(entry, decoder, buffer, Movers::Frozen) {
                        if userfault.poison(address).is_ok() {
                            engine.tell_poisoned(page, engine.why_lost(entry, why));
                        }
                        userfault.wake(address, PAGE);
                        return;
                    }
                    // SAFETY: the buffers are the engine's memory.
                    unsafe { userfault.copy(address, self.buffers.page(0).as_ptr(), PAGE) }
                }
                Some((at, PageState::Leaving(entry))) => {
                    let Some(berth) = engine.staging_berth(entry) else { return };
                    // SAFETY: the ring's memory is fixed; the evictor stands still, so the page
                    // stays where it is.
                    let staged = unsafe { &*engine.staging.get() }.address(berth) + at.in_piece() * PAGE;
                    // SAFETY: as above.
                    *self.buffers.page(0) = unsafe { *(staged as *const Page) };
                    // SAFETY: the buffers are the engine's memory.
                    unsafe { userfault.copy(address, self.buffers.page(0).as_ptr(), PAGE) }
                }
                // A read gets a page of its own too, as in `first_touch`.
                // SAFETY: the zeroes are the engine's memory.
                _ => unsafe { userfault.copy(address, self.buffers.zeroes(), PAGE) },
            };
            match result {
                Err(Stopped { why: Errno::AGAIN, .. }) => {
                    if whose == Whose::Parent {
                        self.read_messages();
                    }
                    rustix::thread::sched_yield();
                }
                Ok(()) => {
                    if whose == Whose::Parent {
                        engine.member().charge_bytes.fetch_add(PAGE as u64, Relaxed);
                    }
                    return;
                }
                Err(_) => {
                    userfault.wake(address, PAGE);
                    return;
                }
            }
        }
    }

    /// Serves the child during the freeze until it is on its own, then thaws the engine.
    pub(crate) fn serve_forked_child(&mut self) {
        let engine = self.engine;
        let fork = &engine.fork;
        if fork.child_seen.load(Acquire) == 0 {
            if fork.turn.is_back() {
                // The forking thread is back. If there were a child, the thread would have waited
                // until its event was read; the event may have been read just before this round, so
                // look once more.
                self.read_messages();
                if fork.child_seen.load(Acquire) == 0 {
                    self.announce_gated_child();
                    self.thaw();
                }
            }
            return;
        }
        let number = fork.handshake_of(engine.seat().pid());
        let child = Userfault(fork.child_userfault.load(Relaxed));
        if engine.member().fork_ack.load(Acquire) == number {
            engine.member().fork_done.store(number, Release);
            self.thaw();
            return;
        }
        let mut messages = [Message::EMPTY; 8];
        let count = self.read_some(child, &mut messages);
        for message in &messages[..count] {
            if let Event::Fault { address, access, thread } = message.event() {
                let fault = self.fault_read_now(PageAddr::containing(address), access, thread, 0);
                self.serve_frozen(child, fault, Whose::Child);
            }
        }
        if count == 0 && sys::now_ns() - fork.opened_ns.load(Relaxed) > 20_000_000 && child.is_gone() {
            self.thaw();
        }
    }

    /// Ends the freeze: the child is on its own, or there is none, and the engine may change again.
    fn thaw(&mut self) {
        let engine = self.engine;
        let fork = &engine.fork;
        let child = fork.child_userfault.swap(0, Relaxed) as u32;
        if child != 0 {
            sys::close_range(child, child);
            engine.space.file_space().share_all();
        }
        {
            let _moves_wait = engine.locks.moves.lock();
            self.process_log();
            fork.log.clear();
            engine.events_are_applied();
        }
        fork.window.store(THAWED, Release);
        if let Err(errno) = fork.renew_token() {
            // With this fork's token the next child's memory could go to this fork's child.
            engine.end(Ending::NoToken, Some(errno));
        }
        fork.end(engine);
    }
}

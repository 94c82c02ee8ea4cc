//! Forks that the system-call gate makes, where the kernel reports none: the child opens a
//! userfaultfd of its own and registers what it has inherited, before it runs code of the program.

use crate::engine::Engine;
use crate::engine::fork_state::Protection;
use crate::evict::sharing::ToProtect;
use crate::fault::handler::Handler;
use crate::kernel::maps::{self, MappingKind};
use crate::kernel::uffd::Watch;
use crate::units::PAGE;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_group::decisions::Forks;
use folioswap_group::protocol::Kind;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

impl Handler {
    /// Announces the child that the gate made in this freeze, if it made one, to the supervisor.
    /// Nobody serves it meanwhile, so the freeze may end.
    pub(crate) fn announce_gated_child(&self) {
        let engine = self.engine;
        if let Some(child) = engine.fork.take_gated_child() {
            let [low, high, _] = engine.fork.token.load().message_words();
            engine.tell(Kind::Forked, [low, high, child.into()], None);
            engine.fork.gain_relative(engine);
            engine.space.file_space().share_all();
            // The forking thread may go on only from here: it might end this process at once.
            engine.fork.child_seen.store(1, Release);
        }
    }
}

impl Engine {
    /// Has a page ready whose removal wakes the handler: no event tells it of a fork that the gate
    /// made, and the program's threads have none of its descriptors. Without memory for it a fork
    /// takes until the handler's next look. Evictor, once.
    pub(crate) fn hang_bell(&self) {
        if self.forks() != Forks::Gated {
            return;
        }
        let Some(page) = self.arena.own_mapping(PAGE) else { return };
        let address = page.as_ptr() as usize;
        if self.userfault().register(address, PAGE, Watch::MoveTarget).is_ok() {
            self.fork.bell.store(address, Release);
        }
    }

    /// Wakes the handler, where it needs that; returns when it has read it.
    pub(crate) fn ring_bell(&self) {
        let bell = self.fork.bell.load(Acquire);
        if bell != 0 {
            // SAFETY: a page of the arena's, in which nothing is.
            let _ = unsafe { madvise(bell as *mut _, PAGE, Advice::LinuxDontNeed) };
        }
    }

    /// Registers all inherited memory of which pages may be away: what the parent had registered,
    /// whatever has become of its permissions since. The caller holds the move lock.
    ///
    /// # Errors
    /// The kernel has no memory or no mapping left for it, or does not say what is mapped.
    pub(crate) fn watch_inherited(&self) -> Result<(), Errno> {
        if self.forks() != Forks::Gated {
            return Ok(());
        }
        // SAFETY: the descriptor is in the pager threads' table and stays open.
        let file = unsafe { BorrowedFd::borrow_raw(self.descriptors.maps.load(Relaxed)) };
        let registered = &self.mappings.registered;
        let (mut buffer, mut outcome) = ([0; 8192], Ok(()));
        maps::read(file, &mut buffer, |mapping| {
            if mapping.kind == MappingKind::File {
                // It has come there since.
                return;
            }
            let overlapping =
                registered.iter().map(|range| (range.start.max(mapping.start), range.end.min(mapping.end)));
            for (start, end) in overlapping.filter(|(start, end)| start < end) {
                let watched = self.userfault().register(start, end - start, Watch::Program);
                outcome = outcome.and(watched);
            }
        })?;
        outcome
    }

    /// Protects again what the parent had protected, because the kernel has dropped all protections
    /// with the registrations. Clean pages stay as they are, so none counts as unchanged any more.
    /// In a child, before anything is served.
    pub(crate) fn protect_inherited(&self) {
        if self.forks() == Forks::Gated && self.fork.protection() == Protection::Protected {
            self.protect_registered(ToProtect::All);
        }
    }

    /// Registers the inherited targets of moves, the staging ring and the pool of huge pages (the
    /// child makes others anew), and the bell; and hands the supervisor the userfaultfd. In a
    /// child, before anything is served.
    ///
    /// # Errors
    /// UFFDIO_REGISTER's.
    pub(crate) fn watch_inherited_targets(&self) -> Result<(), Errno> {
        // SAFETY: the evictor, which owns the ring, does not run yet.
        let staging = unsafe { &*self.staging.get() };
        let bell = self.fork.bell.load(Relaxed);
        for (start, bytes) in [(staging.base(), staging.bytes()), self.pool.range(), (bell, PAGE)] {
            if start != 0 && bytes != 0 {
                self.userfault().register(start, bytes, Watch::MoveTarget)?;
            }
        }
        let userfault = self.descriptors.userfault.load(Relaxed);
        self.tell(Kind::HoldUserfault, [0; 3], Some(userfault));
        Ok(())
    }
}

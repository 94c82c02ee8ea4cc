//! The engine inside a program that asked for it: it manages the memory that its embedder names,
//! and its limit counts that memory, the store and the tables, not the rest of the process.
//!
//! Everything else is as under the agent: the same handler and evictor, the same devices. The
//! differences are here and in `managed.rs`. The embedder starts the threads, and they end when it
//! says so; their descriptors must be in a table of their own, so that the program cannot close
//! them.

use crate::engine::embedded::{EMBEDDED, STOPPING};
use crate::engine::holds::Gate;
use crate::engine::{CreateError, Engine};
use crate::evict::evictor::Evictor;
use crate::fault::buffers::Buffers;
use crate::fault::handler::Handler;
use crate::kernel::latency::Latency;
use crate::kernel::sys;
use crate::kernel::uffd::Userfault;
use crate::units::PAGE;
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_group::counters::Figures;
use folioswap_group::devices::{DeviceDescription, DeviceEntry};
use folioswap_group::group::Group;
use folioswap_group::segment::Member;
use folioswap_slots::{DeviceId, DeviceMask};
use rustix::fd::BorrowedFd;
use rustix::net::{Shutdown, shutdown};

/// The parts that an embedder gives its engine.
pub struct Embedding<'a> {
    /// The group, whose decisions are initialised; all members of a group are in one process.
    pub group: Group<'a>,
    /// The engine's member, which was assigned to this process; no other engine has it.
    pub member: u32,
    /// The engine's end of a `SOCK_SEQPACKET` pair over which the control protocol is spoken,
    /// without a greeting. When the other end closes before [`Engine::stop`], the process is ended.
    pub control: i32,
    /// `/proc/self/pagemap`.
    pub pagemap: i32,
    /// The userfaultfd for its faults; without [`crate::kernel::uffd::FEATURES`]' fork event.
    pub userfault: Userfault,
    /// The devices, by number, with the descriptor of each that has clusters.
    pub devices: &'a [(DeviceDescription, i32)],
    /// The devices that are to be used.
    pub permitted: DeviceMask,
    /// The gate, where the program's calls hold what they use; another engine may ask it too.
    pub calls: Option<&'static Gate>,
}

impl Engine {
    /// Makes an engine for an embedder. No thread is started, nothing is managed yet.
    ///
    /// # Errors
    /// [`CreateError::NoMemory`].
    pub fn create_embedded() -> Result<&'static Engine, CreateError> {
        Engine::create(b"", b"")
    }

    /// Gives the engine its parts. Called once, before its threads are started. All descriptors are
    /// in the table of the threads to come.
    pub fn embed(&self, embedding: &Embedding<'_>) {
        self.descriptors.pagemap.store(embedding.pagemap, Relaxed);
        self.descriptors.control.store(embedding.control, Relaxed);
        self.descriptors.userfault.store(embedding.userfault.0, Relaxed);
        let Group { decisions, segment } = embedding.group;
        self.membership.decisions.store(core::ptr::from_ref(decisions).cast_mut(), Release);
        self.membership.segment.store(core::ptr::from_ref(segment).cast_mut(), Release);
        if let Some(gate) = embedding.calls {
            self.stand_behind(gate);
        }
        self.embedded.forbidden.store(DeviceMask::ALL.minus(embedding.permitted).bits(), Relaxed);
        let shared =
            embedding.permitted.iter().filter_map(|id| Some((id, embedding.devices.get(id.index())?)));
        for (number, &(device, descriptor)) in shared.filter(|(_, (device, _))| device.clusters > 0) {
            self.space.shared_devices().set(number, device, descriptor);
        }
        self.membership.member.store(embedding.member, Release);
        self.embedded.state.store(EMBEDDED, Release);
    }

    /// Returns the devices that new pages may go to: those that were given, in the tiers of the
    /// group and of those around it.
    pub(crate) fn permitted(&self) -> DeviceMask {
        let masked = self.decisions().masked_devices_around(self.seat().group());
        DeviceMask::ALL.minus(DeviceMask::from_bits(self.embedded.forbidden.load(Relaxed) | masked))
    }

    /// Returns the group's devices that may be used, with their numbers.
    pub(crate) fn permitted_devices(
        &self,
    ) -> impl Iterator<Item = (DeviceId, DeviceDescription, &'static DeviceEntry)> {
        let permitted = self.permitted();
        let numbered = DeviceMask::ALL.iter().zip(self.decisions().devices());
        let of = |(number, (device, entry))| (number, device, entry);
        numbered.map(of).filter(move |(number, ..)| permitted.contains(*number))
    }

    /// Does the handler thread's work. Returns when [`Engine::stop`] was called and the evictor has
    /// ended.
    ///
    /// # Errors
    /// [`CreateError::NoMemory`], at once, without memory for its buffers.
    ///
    /// # Safety
    /// Must run in a thread of its own that takes no signals, after [`Engine::embed`]; this is the
    /// only handler.
    pub unsafe fn serve_faults(&'static self) -> Result<(), CreateError> {
        self.threads.handler.store(sys::gettid(), Release);
        sys::raise_priority();
        let buffers = Buffers::of(self).ok_or(CreateError::NoMemory)?;
        let mut handler = Handler::new(self, buffers);
        while !self.embedded.is_stopping() {
            handler.round();
        }
        Ok(())
    }

    /// Does the evictor thread's work. Returns when [`Engine::stop`] was called.
    ///
    /// # Safety
    /// Must run in a thread of its own that takes no signals, after [`Engine::embed`]; this is the
    /// only evictor.
    pub unsafe fn evict(&'static self) {
        sys::raise_priority();
        Evictor::live(self);
        // A registered mapping is removed only when a thread reads the event of that, and none
        // will: a copy of the descriptor may be left where threads of the program serve faults, or
        // in a child of it.
        self.arena.for_pieces(0, usize::MAX, |start, end| {
            // SAFETY: no page of the arena is ever swapped out.
            let _ = unsafe { self.userfault().unregister(start, end - start) };
        });
        // SAFETY: the descriptor is open as long as the threads.
        let control = unsafe { BorrowedFd::borrow_raw(self.descriptors.control.load(Relaxed)) };
        // This wakes the handler, which waits for this end, and the thread that serves the other
        // one.
        let _ = shutdown(control, Shutdown::Both);
    }

    /// Tells the threads to end. No memory may be managed any more.
    pub fn stop(&self) {
        self.embedded.state.store(STOPPING, Release);
        self.wake_evictor();
    }

    /// Gives all memory of the engine back to the system, the engine itself included.
    ///
    /// # Safety
    /// The engine's threads must have ended, nothing may be managed, and no code may use the
    /// reference again.
    pub unsafe fn dismantle(&'static self) {
        let arena = self.arena;
        // SAFETY: by contract.
        unsafe { arena.unmap_all() };
    }

    /// Whether this copy belongs to the calling process. It does not in a forked child, which has
    /// none of the memory.
    pub fn is_of_this_process(&self) -> bool {
        self.is_ours()
    }

    /// Returns the engine's figures.
    pub fn published(&self) -> &Figures {
        self.figures()
    }

    /// Returns the engine's member in the segment.
    pub fn place(&self) -> &Member {
        self.member()
    }

    /// Returns how long faults took to be served.
    pub fn latency(&self) -> &Latency {
        &self.embedded.latency
    }

    /// Returns the resident bytes of managed memory, as counted now.
    pub fn managed_bytes(&self) -> u64 {
        self.embedded.managed_pages().max(0) as u64 * PAGE as u64
    }
}

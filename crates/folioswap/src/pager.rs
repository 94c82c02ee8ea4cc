//! An engine and its threads inside this process.
//!
//! Three threads for each: one that grants clusters of the devices, as the supervisor of `folioswap run` does, and the engine's handler and evictor.
//! They take no signals, and have a descriptor table of their own, in which there is nothing but what they need: the program may close
//! whatever it likes, and no pipe or file of its own stays open because of them.

use crate::Error;
use crate::clusters::{Clusters, Files};
use crate::mapping::{SegmentMapping, process};
use crate::overcommit::Overcommit;
use folioswap_group::devices::DeviceDescription;
use folioswap_group::nested::WHOLE;
use folioswap_group::protocol::{Kind, Message, OutOfMemory};
use folioswap_group::segment::Scope;
use folioswap_pager::embed::embedding::Embedding;
use folioswap_pager::engine::Engine;
use folioswap_pager::engine::link;
use folioswap_pager::kernel::sys::close_range;
use folioswap_pager::kernel::uffd::{Faults, Userfault};
use folioswap_slots::DeviceMask;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// What the engines of one swap and of the groups within it share.
pub(crate) struct Shared {
    pub(crate) segment: SegmentMapping,
    pub(crate) clusters: Mutex<Clusters>,
    /// Held by who makes or ends members and groups.
    pub(crate) places: Mutex<()>,
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, ()> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group's place in the segment, until it is dropped.
pub(crate) struct GroupPlace {
    shared: Arc<Shared>,
    pub(crate) number: u32,
}

impl GroupPlace {
    /// Within the group `parent`. `None`: there are too many, or they are too deep.
    pub(crate) fn new(shared: &Arc<Shared>, parent: u32, limit: u64) -> Option<Self> {
        let _alone = shared.places();
        let number = shared.segment.segment().begin_group(parent, limit)?;
        Some(GroupPlace { shared: Arc::clone(shared), number })
    }
}

impl Drop for GroupPlace {
    fn drop(&mut self) {
        if !self.shared.segment.is_of_this_process() {
            return;
        }
        let _alone = self.shared.places();
        self.shared.segment.segment().end_group(self.number);
    }
}

/// A member's place in the segment, until it is dropped.
struct MemberPlace {
    shared: Arc<Shared>,
    number: u32,
}

impl MemberPlace {
    fn new(shared: &Arc<Shared>, group: u32) -> Result<Self, Error> {
        let _alone = shared.places();
        let segment = shared.segment.segment();
        let number = segment.assign(process()).ok_or(Error::TooManyGroups)?;
        segment.members[number as usize].group.store(group, Release);
        Ok(MemberPlace { shared: Arc::clone(shared), number })
    }
}

impl Drop for MemberPlace {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that it has not.
        if !self.shared.segment.is_of_this_process() {
            return;
        }
        let _alone = self.shared.places();
        self.shared.segment.segment().release(self.number);
    }
}

/// Whose engine it is: a group, and what is done when it, or one around it, is full; from the inside out.
pub(crate) type Owners = Vec<(u32, Arc<Overcommit>)>;

/// What an engine's threads find open, by number.
pub(crate) struct Descriptors {
    pub(crate) faults: Faults,
    pub(crate) userfault: RawFd,
    pub(crate) pagemap: RawFd,
    /// Of each device; -1 for those without a file, or that are not to be used.
    pub(crate) devices: Vec<(DeviceDescription, RawFd)>,
    /// Those that are to be used.
    pub(crate) permitted: DeviceMask,
}

impl Files for Descriptors {
    fn of(&self, number: usize) -> BorrowedFd<'_> {
        // SAFETY: in the table of the thread that grants, which keeps it open.
        unsafe { BorrowedFd::borrow_raw(self.devices[number].1) }
    }
}

/// A running engine. Its threads end when it is dropped: nothing may be managed any more.
pub(crate) struct Pager {
    engine: &'static Engine,
    granting: Option<JoinHandle<()>>,
    /// The thread that grants, in whose table the devices' files are open.
    granting_thread: u32,
    /// Where threads of the program serve faults, they find descriptors in the program's table.
    _control: Option<OwnedFd>,
    _place: MemberPlace,
}

/// The two ends of the control connection.
struct Control {
    engines: OwnedFd,
    ours: OwnedFd,
}

const STACK_BYTES: usize = 1 << 20;

impl Pager {
    /// Starts an engine as a member of the first of these groups. The descriptors must be open here; the threads keep copies.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        owners: Owners,
        descriptors: Descriptors,
    ) -> Result<Self, Error> {
        let group = owners.first().map_or(WHOLE, |(group, _)| *group);
        let place = MemberPlace::new(shared, group)?;
        let no_memory = |_| Error::System { doing: "making the engine", errno: Errno::NOMEM };
        let (engines, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(Error::system("making a socket"))?;
        let control = Control { engines, ours };
        let engine = Engine::create_embedded().map_err(no_memory)?;
        let (faults, (tell, told)) = (descriptors.faults, sync_channel(1));
        let threads = Threads {
            engine,
            shared: Arc::clone(shared),
            owners,
            member: place.number,
            control: control.engines.as_raw_fd(),
            ours: control.ours.as_raw_fd(),
            descriptors,
        };
        let masked = SignalsBlocked::new();
        let granting = start_thread("folioswap-group", move || threads.run(&tell));
        drop(masked);
        let started = match granting {
            Ok(granting) => told.recv().unwrap_or(Err(Errno::AGAIN)).map(|thread| (granting, thread)),
            Err(errno) => Err(errno),
        };
        match started {
            Ok((granting, granting_thread)) => {
                engine.wait_until_running();
                let _control = (faults == Faults::Signals).then_some(control.engines);
                Ok(Pager { engine, granting: Some(granting), granting_thread, _control, _place: place })
            }
            Err(errno) => {
                // SAFETY: no thread uses it, and nothing is managed.
                unsafe { engine.dismantle() };
                Err(Error::System { doing: "starting the engine's threads", errno })
            }
        }
    }

    pub(crate) fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// A thread that has the devices' files open, under the numbers with which it was started.
    pub(crate) fn granting_thread(&self) -> u32 {
        self.granting_thread
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if !self.engine.is_of_this_process() {
            // A forked child has neither the threads nor the memory.
            std::mem::forget(self.granting.take());
            return;
        }
        self.engine.stop();
        if let Some(granting) = self.granting.take() {
            let _ = granting.join();
        }
        // SAFETY: the threads have ended; who holds a region holds us.
        unsafe { self.engine.dismantle() };
    }
}

/// What the threads begin with.
struct Threads {
    engine: &'static Engine,
    shared: Arc<Shared>,
    owners: Owners,
    member: u32,
    control: RawFd,
    ours: RawFd,
    descriptors: Descriptors,
}

impl Threads {
    /// The granting thread: leaves the process's descriptor table, starts the two others, and serves until the engine is stopped.
    fn run(self, tell: &SyncSender<Result<u32, Errno>>) {
        if let Err(errno) = self.leave_table() {
            let _ = tell.send(Err(errno));
            return;
        }
        let Threads { engine, .. } = self;
        engine.embed(&Embedding {
            segment: self.shared.segment.segment(),
            member: self.member,
            control: self.control,
            userfault: Userfault(self.descriptors.userfault),
            pagemap: self.descriptors.pagemap,
            devices: &self.descriptors.devices,
            permitted: self.descriptors.permitted,
        });
        let faults = self.descriptors.faults;
        if faults == Faults::Signals && engine.prepare_for_signals().is_err() {
            let _ = tell.send(Err(Errno::NOMEM));
            return;
        }
        let handler = start_thread("folioswap-fault", move || {
            if faults == Faults::Signals {
                // SAFETY: a thread of its own, without signals, the only one; prepared.
                unsafe { engine.serve_events() };
                return;
            }
            // SAFETY: as above.
            if unsafe { engine.serve_faults() }.is_err() {
                fail("no memory for the buffers of its fault handler");
            }
        });
        let handler = match handler {
            Ok(handler) => handler,
            Err(errno) => {
                let _ = tell.send(Err(errno));
                return;
            }
        };
        // SAFETY: as above.
        let evictor = start_thread("folioswap-evict", move || unsafe { engine.evict() });
        let evictor = match evictor {
            Ok(evictor) => evictor,
            Err(errno) => {
                engine.stop();
                let _ = handler.join();
                let _ = tell.send(Err(errno));
                return;
            }
        };
        let _ = tell.send(Ok(rustix::thread::gettid().as_raw_nonzero().get() as u32));
        self.grant();
        let _ = evictor.join();
        let _ = handler.join();
    }

    /// The calling thread gets a table of its own, with nothing in it but what the engine needs, and standard error for last words.
    fn leave_table(&self) -> Result<(), Errno> {
        // SAFETY: changes the calling thread's table only; the descriptors it loses there are not used by it.
        if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
            return Err(Errno::NOMEM);
        }
        let Descriptors { userfault, pagemap, devices, .. } = &self.descriptors;
        let mut kept = vec![2, *userfault, *pagemap, self.control, self.ours];
        kept.extend(devices.iter().map(|(_, descriptor)| *descriptor).filter(|descriptor| *descriptor >= 0));
        kept.sort_unstable();
        let mut from = 0;
        for descriptor in kept {
            if descriptor as u32 > from {
                close_range(from, descriptor as u32 - 1);
            }
            from = descriptor as u32 + 1;
        }
        close_range(from, u32::MAX);
        Ok(())
    }

    /// Answers the engine until it is stopped; then the clusters that it still has are free.
    fn grant(&self) {
        let segment = self.shared.segment.segment();
        let group = self.owners.first().map_or(WHOLE, |(group, _)| *group);
        let clusters = || self.shared.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut granted = HashSet::new();
        while let Ok((message, _)) = link::receive(self.ours) {
            let [first, second, _] = message.words;
            match message.kind() {
                Some(Kind::WantClusters) => {
                    let wanted = second & u64::from(self.descriptors.permitted.bits());
                    let new = clusters().grant(segment, &self.descriptors, wanted, first as usize);
                    segment.charge_outside(group, self.counted_bytes(&new));
                    granted.extend(&new);
                    let answer = Message::new(Kind::Clusters, [new.len() as u64, 0, 0]).with_clusters(&new);
                    if link::send(self.ours, &answer, None).is_err() {
                        break;
                    }
                }
                Some(Kind::DropClusters) => {
                    let dropped: Vec<u32> = message
                        .clusters()
                        .iter()
                        .copied()
                        .filter(|cluster| granted.remove(cluster))
                        .collect();
                    self.give_back(&dropped);
                }
                Some(Kind::OutOfMemory) if first == OutOfMemory::PagerFailed as u64 => {
                    fail(&format!("error {second} of a system call that may not fail"));
                }
                Some(Kind::OutOfMemory) => {
                    self.owners
                        .iter()
                        .for_each(|(group, overcommit)| overcommit.out_of_memory(segment, *group));
                }
                // A lost page, or a broken invariant, is in the figures.
                _ => {}
            }
        }
        self.give_back(&granted.into_iter().collect::<Vec<_>>());
    }

    /// Of these clusters, the bytes of memory that the group's limit counts. (The whole's counts are in the header.)
    fn counted_bytes(&self, of: &[u32]) -> u64 {
        match self.shared.segment.segment().scope() {
            Scope::Total => {
                self.shared.clusters.lock().unwrap_or_else(PoisonError::into_inner).bytes_in_memory(of)
            }
            Scope::Resident => 0,
        }
    }

    /// Clusters of the engine's are free.
    fn give_back(&self, dropped: &[u32]) {
        let segment = self.shared.segment.segment();
        let group = self.owners.first().map_or(WHOLE, |(group, _)| *group);
        segment.uncharge_outside(group, self.counted_bytes(dropped));
        let mut clusters = self.shared.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.give_back(segment, &self.descriptors, dropped);
    }
}

/// The memory that is managed can be served no more: one message, and the end of the process, rather than threads that wait for ever.
pub(crate) fn fail(why: &str) -> ! {
    eprintln!(
        "folioswap: the engine cannot go on ({why}); the process is ended, since memory that is swapped out cannot come back"
    );
    std::process::abort()
}

/// Starts a thread whose panic is the process's end.
fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Errno> {
    let work = move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            fail("a bug, see above");
        }
    };
    let started = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work);
    started.map_err(|error| error.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error))
}

/// No signal comes to the calling thread, or is to come to those that it starts, until this is dropped.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: sets of our own; the calling thread's mask is put back on drop.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            SignalsBlocked(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the mask that was before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

//! An engine and its threads inside this process.
//!
//! Each engine has three threads: one that grants clusters of the devices, as the supervisor of
//! `folioswap run` does, and the engine's handler and evictor. They take no signals. They have a
//! descriptor table of their own that holds only the descriptors they need: the program may close
//! any of its descriptors, and the threads keep none of the program's pipes and files open.

use crate::Error;
use crate::clusters::{Clusters, DeviceFiles};
use crate::mapping::{GroupMapping, process};
use crate::overcommit::Overcommit;
use crate::thrashing::{Thrashing, Watch};
use folioswap_group::decisions::Scope;
use folioswap_group::devices::DeviceDescription;
use folioswap_group::nested::WHOLE;
use folioswap_group::protocol::{Kind, Message, OutOfMemory};
use folioswap_pager::embed::embedding::Embedding;
use folioswap_pager::engine::holds::Gate;
use folioswap_pager::engine::{Engine, link};
use folioswap_pager::kernel::futex::{self, Sharing};
use folioswap_pager::kernel::sys::close_range;
use folioswap_pager::kernel::uffd::{Faults, Userfault};
use folioswap_slots::DeviceMask;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// State that the engines of one swap and of all groups within it share.
pub(crate) struct SwapTree {
    pub(crate) memory: GroupMapping,
    pub(crate) clusters: Mutex<Clusters>,
    /// Held while members and groups are made or ended.
    pub(crate) membership: Mutex<()>,
}

impl SwapTree {
    /// Lets no new pages of a group, and of those within it, go to these devices. `None`, and
    /// nothing has changed: one of those groups would have no device that takes pages.
    pub(crate) fn mask(&self, group: u32, masked: DeviceMask) -> Option<()> {
        let _alone = self.lock_membership();
        let whole = self.memory.group();
        let taking = DeviceMask::ALL.iter().zip(whole.decisions.devices());
        let taking = taking.filter(|(_, (_, entry))| entry.takes_pages());
        let taking = taking.fold(DeviceMask::NONE, |taking, (id, _)| taking.with(id));
        if !whole.decisions.would_have_devices(group, masked.bits(), taking.bits()) {
            return None;
        }
        self.memory.writer().set_masked_devices_of(group, masked.bits());
        for member in whole.members_within(group) {
            futex::post(&member.wake, Sharing::Shared);
        }
        Some(())
    }

    fn lock_membership(&self) -> MutexGuard<'_, ()> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a nested group, released on drop.
pub(crate) struct GroupRegistration {
    tree: Arc<SwapTree>,
    pub(crate) number: u32,
}

impl GroupRegistration {
    /// Registers a group within the group `parent`. `None`: there are too many groups, or they are
    /// nested too deeply.
    pub(crate) fn new(tree: &Arc<SwapTree>, parent: u32, limit: u64) -> Option<Self> {
        let _alone = tree.lock_membership();
        let number = tree.memory.writer().begin_group(parent, limit)?;
        Some(GroupRegistration { tree: Arc::clone(tree), number })
    }
}

impl Drop for GroupRegistration {
    fn drop(&mut self) {
        if !self.tree.memory.is_of_this_process() {
            return;
        }
        let _alone = self.tree.lock_membership();
        self.tree.memory.writer().end_group(self.number);
    }
}

/// A member's number in the group, released on drop.
struct MemberRegistration {
    tree: Arc<SwapTree>,
    number: u32,
}

impl MemberRegistration {
    fn new(tree: &Arc<SwapTree>, group: u32) -> Result<Self, Error> {
        let _alone = tree.lock_membership();
        let (segment, writer) = (tree.memory.group().segment, tree.memory.writer());
        let number = writer.assign(segment, process()).ok_or(Error::TooManyGroups)?;
        writer.set_group(number, group);
        Ok(MemberRegistration { tree: Arc::clone(tree), number })
    }
}

impl Drop for MemberRegistration {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that the child does not have.
        if !self.tree.memory.is_of_this_process() {
            return;
        }
        let _alone = self.tree.lock_membership();
        self.tree.memory.writer().release(self.tree.memory.group().segment, self.number);
    }
}

/// The groups that an engine belongs to, from the inside out, each with its reaction to being full.
pub(crate) type Owners = Vec<(u32, Arc<Overcommit>)>;

/// The descriptors that an engine's threads need, by number, and what else it starts with.
pub(crate) struct Descriptors {
    pub(crate) faults: Faults,
    /// The gate, where system calls hold what they use.
    pub(crate) calls: Option<&'static Gate>,
    pub(crate) userfault: RawFd,
    pub(crate) pagemap: RawFd,
    /// One for each device; -1 for a device without a file or one that is not permitted.
    pub(crate) devices: Vec<(DeviceDescription, RawFd)>,
    /// The devices that the engine may use.
    pub(crate) permitted: DeviceMask,
}

impl DeviceFiles for Descriptors {
    fn of(&self, number: usize) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is in the table of the granting thread, which keeps it open.
        unsafe { BorrowedFd::borrow_raw(self.devices[number].1) }
    }
}

/// A running engine. Drop ends its threads: nothing may be managed any more by then.
pub(crate) struct Pager {
    engine: &'static Engine,
    granting: Option<JoinHandle<()>>,
    /// The granting thread, in whose descriptor table the devices' files are open.
    granting_thread: u32,
    /// Where threads of the program serve faults, they need descriptors in the program's table.
    _control: Option<OwnedFd>,
    _registration: MemberRegistration,
}

/// The two ends of the control connection.
struct Control {
    engines: OwnedFd,
    ours: OwnedFd,
}

const STACK_BYTES: usize = 1 << 20;

impl Pager {
    /// Starts an engine as a member of the first of the groups. The descriptors must be open in the
    /// caller's table; the threads keep copies.
    pub(crate) fn start(
        tree: &Arc<SwapTree>,
        owners: Owners,
        thrashing: &Arc<Thrashing>,
        descriptors: Descriptors,
    ) -> Result<Self, Error> {
        let group = owners.first().map_or(WHOLE, |(group, _)| *group);
        let registration = MemberRegistration::new(tree, group)?;
        let no_memory = |_| Error::System { doing: "making the engine", errno: Errno::NOMEM };
        let (engines, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(Error::system("making a socket"))?;
        let control = Control { engines, ours };
        let engine = Engine::create_embedded().map_err(no_memory)?;
        let (faults, (tell, told)) = (descriptors.faults, sync_channel(1));
        let threads = Threads {
            engine,
            tree: Arc::clone(tree),
            owners,
            thrashing: Arc::clone(thrashing),
            member: registration.number,
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
                Ok(Pager {
                    engine,
                    granting: Some(granting),
                    granting_thread,
                    _control,
                    _registration: registration,
                })
            }
            Err(errno) => {
                // SAFETY: no thread uses the engine, and nothing is managed.
                unsafe { engine.dismantle() };
                Err(Error::System { doing: "starting the engine's threads", errno })
            }
        }
    }

    pub(crate) fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// Returns a thread that has the devices' files open, under the numbers in [`Descriptors`].
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
        // SAFETY: the threads have ended, and every region holds the `Inner` that owns this pager.
        unsafe { self.engine.dismantle() };
    }
}

/// The state that the threads start with.
struct Threads {
    engine: &'static Engine,
    tree: Arc<SwapTree>,
    owners: Owners,
    thrashing: Arc<Thrashing>,
    member: u32,
    control: RawFd,
    ours: RawFd,
    descriptors: Descriptors,
}

impl Threads {
    /// The granting thread's work: leaves the process's descriptor table, starts the two other
    /// threads, and serves until the engine is stopped.
    fn run(self, tell: &SyncSender<Result<u32, Errno>>) {
        if let Err(errno) = self.leave_table() {
            let _ = tell.send(Err(errno));
            return;
        }
        let Threads { engine, .. } = self;
        engine.embed(&Embedding {
            group: self.tree.memory.group(),
            member: self.member,
            control: self.control,
            userfault: Userfault(self.descriptors.userfault),
            pagemap: self.descriptors.pagemap,
            devices: &self.descriptors.devices,
            permitted: self.descriptors.permitted,
            calls: self.descriptors.calls,
        });
        let faults = self.descriptors.faults;
        if faults == Faults::Signals && engine.prepare_for_signals().is_err() {
            let _ = tell.send(Err(Errno::NOMEM));
            return;
        }
        let handler = start_thread("folioswap-fault", move || {
            if faults == Faults::Signals {
                // SAFETY: the only thread that serves events; it takes no signals, and the engine
                // is prepared.
                unsafe { engine.serve_events() };
                return;
            }
            // SAFETY: the only handler thread; it takes no signals.
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
        // SAFETY: the only evictor thread; it takes no signals.
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

    /// Gives the calling thread a descriptor table of its own that holds only the descriptors of
    /// the engine, and standard error for a last message.
    fn leave_table(&self) -> Result<(), Errno> {
        // SAFETY: changes only the calling thread's table; the thread does not use the descriptors
        // it loses.
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

    /// Answers the engine until it is stopped, and then frees the clusters that the engine still
    /// has.
    fn grant(&self) {
        let memory = &self.tree.memory;
        let group = self.owners.first().map_or(WHOLE, |(group, _)| *group);
        let clusters = || self.tree.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut granted = HashSet::new();
        let mut watch = Watch::new(self.engine, &self.thrashing);
        let mut next = || {
            watch.wait(self.ours, || memory.group().decisions.limit_of(group));
            link::receive(self.ours)
        };
        while let Ok((message, _)) = next() {
            let [first, second, _] = message.words;
            match message.kind() {
                Some(Kind::WantClusters) => {
                    let wanted = second & u64::from(self.descriptors.permitted.bits());
                    let new = clusters().grant(memory.writer(), &self.descriptors, wanted, first as usize);
                    memory.writer().charge_outside(group, self.counted_bytes(&new));
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
                        .for_each(|(group, overcommit)| overcommit.out_of_memory(memory, *group));
                }
                // A lost page or a broken invariant shows in the counters.
                _ => {}
            }
        }
        self.give_back(&granted.into_iter().collect::<Vec<_>>());
    }

    /// Returns how many bytes of these clusters are memory that the group's limit counts. (The
    /// decisions have a word of its own for the outermost swap.)
    fn counted_bytes(&self, of: &[u32]) -> u64 {
        match self.tree.memory.group().decisions.scope() {
            Scope::Total => {
                self.tree.clusters.lock().unwrap_or_else(PoisonError::into_inner).bytes_in_memory(of)
            }
            Scope::Resident => 0,
        }
    }

    /// Takes clusters back from the engine.
    fn give_back(&self, dropped: &[u32]) {
        let writer = self.tree.memory.writer();
        let group = self.owners.first().map_or(WHOLE, |(group, _)| *group);
        writer.uncharge_outside(group, self.counted_bytes(dropped));
        let mut clusters = self.tree.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.give_back(writer, &self.descriptors, dropped);
    }
}

/// Reports that managed memory can be served no more, and aborts the process, because its threads
/// would wait forever.
pub(crate) fn fail(why: &str) -> ! {
    eprintln!(
        "folioswap: the engine cannot go on ({why}); the process is ended, since memory that is swapped out cannot come back"
    );
    std::process::abort()
}

/// Starts a thread whose panic aborts the process.
fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Errno> {
    let work = move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            fail("a bug, see above");
        }
    };
    let started = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work);
    started.map_err(|error| error.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error))
}

/// Blocks all signals for the calling thread, and for threads that it starts, until dropped.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: the sets are local; drop restores the calling thread's mask.
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
        // SAFETY: the mask was the thread's before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

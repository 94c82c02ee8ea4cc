//! An engine and its threads inside this process.
//!
//! Three threads: one that grants clusters of the devices, as the supervisor of `folioswap run` does, and the engine's handler and evictor.
//! They take no signals, and have a descriptor table of their own, in which there is nothing but what they need: the program may close
//! whatever it likes, and no pipe or file of its own stays open because of them.

use crate::Error;
use crate::clusters::Clusters;
use crate::mapping::SegmentMapping;
use crate::overcommit::Overcommit;
use folioswap_group::devices::DeviceDescription;
use folioswap_group::protocol::{Kind, Message, OutOfMemory};
use folioswap_pager::embed::Embedding;
use folioswap_pager::engine::Engine;
use folioswap_pager::link;
use folioswap_pager::sys::close_range;
use folioswap_pager::uffd::{Faults, Userfault};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// What the engines of one swap share.
pub(crate) struct Shared {
    pub(crate) segment: SegmentMapping,
    pub(crate) clusters: Mutex<Clusters>,
    pub(crate) overcommit: Overcommit,
}

/// What an engine's threads find open, by number.
pub(crate) struct Descriptors {
    pub(crate) faults: Faults,
    pub(crate) userfault: RawFd,
    pub(crate) pagemap: RawFd,
    /// Of each device; -1 for those without a file.
    pub(crate) devices: Vec<(DeviceDescription, RawFd)>,
}

/// A running engine. Its threads end when it is dropped: nothing may be managed any more.
pub(crate) struct Pager {
    engine: &'static Engine,
    granting: Option<JoinHandle<()>>,
    /// Where threads of the program serve faults, they find descriptors in the program's table.
    _control: Option<OwnedFd>,
}

/// The two ends of the control connection.
struct Control {
    engines: OwnedFd,
    ours: OwnedFd,
}

const STACK_BYTES: usize = 1 << 20;

impl Pager {
    /// Starts an engine as member number `member`. The descriptors must be open here; the threads keep copies.
    pub(crate) fn start(shared: &Arc<Shared>, member: u32, descriptors: Descriptors) -> Result<Self, Error> {
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
            member,
            control: control.engines.as_raw_fd(),
            ours: control.ours.as_raw_fd(),
            descriptors,
        };
        let masked = SignalsBlocked::new();
        let granting = start_thread("folioswap-group", move || threads.run(&tell));
        drop(masked);
        let started = match granting {
            Ok(granting) => told.recv().unwrap_or(Err(Errno::AGAIN)).map(|()| granting),
            Err(errno) => Err(errno),
        };
        match started {
            Ok(granting) => {
                engine.wait_until_running();
                let keeps = faults == Faults::Signals;
                Ok(Pager { engine, granting: Some(granting), _control: keeps.then_some(control.engines) })
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
    member: u32,
    control: RawFd,
    ours: RawFd,
    descriptors: Descriptors,
}

impl Threads {
    /// The granting thread: leaves the process's descriptor table, starts the two others, and serves until the engine is stopped.
    fn run(self, tell: &SyncSender<Result<(), Errno>>) {
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
        let _ = tell.send(Ok(()));
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

    /// Answers the engine until it is stopped.
    fn grant(&self) {
        let segment = self.shared.segment.segment();
        let clusters = || self.shared.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok((message, _)) = link::receive(self.ours) {
            let [first, second, _] = message.words;
            match message.kind() {
                Some(Kind::WantClusters) => {
                    let granted = clusters().grant(segment, second, first as usize);
                    let answer =
                        Message::new(Kind::Clusters, [granted.len() as u64, 0, 0]).with_clusters(&granted);
                    if link::send(self.ours, &answer, None).is_err() {
                        return;
                    }
                }
                Some(Kind::DropClusters) => clusters().give_back(segment, message.clusters()),
                Some(Kind::OutOfMemory) if first == OutOfMemory::PagerFailed as u64 => {
                    fail(&format!("error {second} of a system call that may not fail"));
                }
                Some(Kind::OutOfMemory) => self.shared.overcommit.out_of_memory(segment),
                // A lost page, or a broken invariant, is in the figures.
                _ => {}
            }
        }
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

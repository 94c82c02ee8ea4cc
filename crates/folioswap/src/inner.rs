//! The state that a swap and its regions share: the engines, and the limits that hold for them.

use crate::device::Prepared;
use crate::gate::{self, Gate};
use crate::mapping::process;
use crate::overcommit::{Overcommit, WhenFull};
use crate::pager::{Descriptors, GroupRegistration, Owners, Pager, SwapTree};
use crate::thrashing::Thrashing;
use crate::{Error, FaultMode, LEAST_LIMIT, sigbus};
use folioswap_group::devices::DeviceDescription;
use folioswap_group::nested::WHOLE;
use folioswap_pager::engine::Engine;
use folioswap_pager::engine::holds::Gate as Calls;
use folioswap_pager::kernel::uffd::{Faults, Origins, Userfault};
use folioswap_policy::tiers;
use folioswap_slots::DeviceMask;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The tables take at most this part of the managed memory, when all of it is swapped out.
const METADATA_PART: u64 = 128;

/// Which threads serve faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedBy {
    /// Threads of the engine.
    Threads,
    /// Threads of the engine and, for some regions, the faulting threads.
    Both,
}

/// The parts that a swap is made of.
pub(crate) struct Parts {
    pub(crate) limit: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) faults: ServedBy,
    pub(crate) gate: Gate,
    pub(crate) permitted: DeviceMask,
    /// All devices, by number; those that are not permitted come without a file.
    pub(crate) devices: Vec<Prepared>,
}

/// A swap whose counter has no room for more bytes.
struct CounterFull {
    /// The counter's value, in bytes.
    counted: u64,
    /// The limit of that swap, in bytes.
    limit: u64,
}

pub(crate) struct Inner {
    /// Declared first, because its threads must end before the fields below are dropped.
    pager: Pager,
    /// The engine of regions of [`FaultMode::Sigbus`].
    signals: Option<Pager>,
    _kept: Vec<OwnedFd>,
    /// For a group within another swap. Declared behind the engines, which are its members.
    registration: Option<GroupRegistration>,
    pub(crate) tree: Arc<SwapTree>,
    overcommit: Arc<Overcommit>,
    pub(crate) thrashing: Arc<Thrashing>,
    permitted: DeviceMask,
    /// Each device with its descriptor, if it has one, in the table of the granting thread.
    devices: Vec<(DeviceDescription, RawFd)>,
    gate: Gate,
    served: Served,
    process: u32,
    pub(crate) closed: AtomicBool,
    pinned_bytes: AtomicU64,
    /// Bytes of the limit that are set aside.
    aside_bytes: AtomicU64,
    limit: AtomicU64,
    /// The swap around this group. Declared last, because the shared state belongs to it.
    parent: Option<Arc<Inner>>,
}

impl Inner {
    /// Starts the engines.
    pub(crate) fn new(tree: Arc<SwapTree>, parent: Option<Arc<Inner>>, parts: Parts) -> Result<Self, Error> {
        let Parts { limit, when_full, faults, gate, permitted, devices } = parts;
        let registration = match &parent {
            Some(parent) => {
                let registration =
                    GroupRegistration::new(&tree, parent.group(), limit).ok_or(Error::TooManyGroups)?;
                tree.mask(registration.number, DeviceMask::ALL.minus(permitted)).ok_or(Error::NoDevices)?;
                Some(registration)
            }
            None => None,
        };
        let overcommit = Arc::new(Overcommit::new(when_full));
        let mut owners: Owners = vec![(
            registration.as_ref().map_or(WHOLE, |registration| registration.number),
            Arc::clone(&overcommit),
        )];
        let around = std::iter::successors(parent.as_deref(), |inner| inner.parent.as_deref());
        owners.extend(around.map(|inner| (inner.group(), Arc::clone(&inner.overcommit))));
        let descriptor = |device: &Prepared| device.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let described: Vec<_> =
            devices.iter().map(|device| (device.description, descriptor(device))).collect();
        let thrashing = Arc::new(Thrashing::default());
        let start = |faults| {
            let (opened, origins) = open_files(faults)?;
            let calls = match gate.chosen() {
                Gate::Never => None,
                Gate::Auto if origins == Origins::All => None,
                Gate::Auto | Gate::Always => gate::stand(),
            };
            if calls.is_some() {
                gate::limit(limit);
            }
            let descriptors = Descriptors {
                faults,
                calls,
                userfault: opened[0].as_raw_fd(),
                pagemap: opened[1].as_raw_fd(),
                devices: described.to_vec(),
                permitted,
            };
            let pager = Pager::start(&tree, owners.clone(), &thrashing, descriptors)?;
            Ok::<_, Error>((pager, Vec::from(opened), Served { origins, calls }))
        };
        // The engine's threads have copies of all descriptors. Where threads of the program serve
        // faults, the program's copies stay open too; otherwise they are closed with `opened`.
        let (pager, opened, served) = start(Faults::Messages)?;
        drop(opened);
        let (mut signals, mut kept) = (None, Vec::new());
        if faults == ServedBy::Both {
            let (pager, opened, _) = start(Faults::Signals)?;
            kept = opened;
            kept.extend(devices.into_iter().filter_map(|device| device.file));
            signals = Some(pager);
            sigbus::install();
        }
        Ok(Inner {
            pager,
            signals,
            _kept: kept,
            registration,
            tree,
            overcommit,
            thrashing,
            permitted,
            devices: described,
            gate,
            served,
            process: process(),
            closed: AtomicBool::new(false),
            pinned_bytes: AtomicU64::new(0),
            aside_bytes: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            parent,
        })
    }

    /// Fails in a process that was forked from the one that made the swap.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process == process() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Fails when the swap has been closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Returns the group's number among nested groups.
    pub(crate) fn group(&self) -> u32 {
        self.registration.as_ref().map_or(WHOLE, |registration| registration.number)
    }

    /// Returns the swap and those around it, from the inside out.
    fn self_and_ancestors(&self) -> impl Iterator<Item = &Inner> {
        std::iter::successors(Some(self), |inner| inner.parent.as_deref())
    }

    /// Returns the devices that the swap may use, out of all.
    pub(crate) fn permitted(&self) -> DeviceMask {
        self.permitted
    }

    /// Returns how many devices there are.
    pub(crate) fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Returns all devices as they were given, with the files of the permitted ones opened anew.
    pub(crate) fn devices_again(&self, permitted: DeviceMask) -> Result<Vec<Prepared>, Error> {
        let thread = self.pager.granting_thread();
        let opened = |(id, &(description, descriptor)): (_, &(DeviceDescription, RawFd))| {
            let file = if descriptor >= 0 && permitted.contains(id) {
                // The program has no descriptor of the files, or could have closed it.
                let path = format!("/proc/self/task/{thread}/fd/{descriptor}");
                let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
                Some(file.map_err(Error::system("opening a device's file for a group"))?)
            } else {
                None
            };
            Ok(Prepared { description, file })
        };
        DeviceMask::ALL.iter().zip(&self.devices).map(opened).collect()
    }

    /// Returns the limit as it is now, in bytes: the requested one, unless it gave way.
    pub(crate) fn limit_now(&self) -> u64 {
        self.tree.memory.group().decisions.limit_of(self.group())
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&self, limit: u64) -> Result<(), Error> {
        let least = LEAST_LIMIT + self.aside_bytes.load(Relaxed);
        if limit < least {
            return Err(Error::LimitTooSmall { given: limit, least });
        }
        self.limit.store(limit, Relaxed);
        if self.calls_hold() {
            gate::limit(limit);
        }
        self.tree.memory.writer().set_limit_of(self.group(), limit);
        self.wake_evictors();
        Ok(())
    }

    /// Changes the tiers that take new pages.
    pub(crate) fn set_tiers(&self, list: &str) -> Result<(), Error> {
        let devices = tiers::devices_in(list, self.devices.iter().map(|(device, _)| Some(device.priority)));
        let permitted = self.permitted.intersection(devices.map_err(Error::Tiers)?);
        self.tree.mask(self.group(), DeviceMask::ALL.minus(permitted)).ok_or(Error::NoDevices)
    }

    /// Returns the most that regions may take: the least of the limits of the swap and those around
    /// it, each without the bytes that are set aside.
    pub(crate) fn available_limit(&self) -> u64 {
        let room = |inner: &Inner| inner.limit.load(Relaxed).saturating_sub(inner.aside_bytes.load(Relaxed));
        self.self_and_ancestors().map(room).min().unwrap_or(0)
    }

    /// Returns how often the limit gave way.
    pub(crate) fn times_exceeded(&self) -> u64 {
        self.overcommit.times_exceeded()
    }

    /// Counts bytes as pinned, in this swap and all around it.
    pub(crate) fn add_pinned(&self, bytes: u64) -> Result<(), Error> {
        let most =
            |inner: &Inner| inner.limit.load(Relaxed).saturating_sub(inner.aside_bytes.load(Relaxed)) / 2;
        self.add(|inner| &inner.pinned_bytes, bytes, most)
            .map_err(|CounterFull { counted, limit }| Error::PinTooLarge { bytes, pinned: counted, limit })
    }

    /// Undoes [`Inner::add_pinned`].
    pub(crate) fn take_pinned(&self, bytes: u64) {
        self.self_and_ancestors().for_each(|inner| {
            inner.pinned_bytes.fetch_sub(bytes, AcqRel);
        });
    }

    /// Counts bytes as set aside, in this swap and all around it.
    pub(crate) fn add_aside(&self, bytes: u64) -> Result<(), Error> {
        let most = |inner: &Inner| inner.limit.load(Relaxed).saturating_sub(LEAST_LIMIT);
        self.add(|inner| &inner.aside_bytes, bytes, most)
            .map_err(|CounterFull { counted, limit }| Error::SetAside { bytes, aside: counted, limit })?;
        let writer = self.tree.memory.writer();
        writer.charge_outside(self.group(), bytes);
        writer.add_unmanaged(bytes);
        self.wake_evictors();
        Ok(())
    }

    /// Undoes [`Inner::add_aside`].
    pub(crate) fn take_aside(&self, bytes: u64) {
        let writer = self.tree.memory.writer();
        writer.take_unmanaged(bytes);
        writer.uncharge_outside(self.group(), bytes);
        self.self_and_ancestors().for_each(|inner| {
            inner.aside_bytes.fetch_sub(bytes, AcqRel);
        });
    }

    /// Adds `bytes` to the counter of this swap and of all around it, if each sum stays within
    /// `most`. Otherwise changes nothing, and returns the first counter that is full.
    fn add(
        &self,
        count: impl Fn(&Inner) -> &AtomicU64,
        bytes: u64,
        most: impl Fn(&Inner) -> u64,
    ) -> Result<(), CounterFull> {
        for (depth, inner) in self.self_and_ancestors().enumerate() {
            let fits = |now: u64| now.checked_add(bytes).filter(|all| *all <= most(inner));
            if let Err(now) = count(inner).fetch_update(AcqRel, Relaxed, fits) {
                self.self_and_ancestors().take(depth).for_each(|inner| {
                    count(inner).fetch_sub(bytes, AcqRel);
                });
                return Err(CounterFull { counted: now, limit: inner.limit.load(Relaxed) });
            }
        }
        Ok(())
    }

    /// Has the evictors look at once, after a limit or the bytes set aside were changed.
    fn wake_evictors(&self) {
        self.self_and_ancestors().flat_map(Inner::engines).for_each(Engine::wake_evictor);
    }

    /// Returns the engine that serves regions of this mode.
    pub(crate) fn engine(&self, mode: FaultMode) -> Result<&'static Engine, Error> {
        match mode {
            FaultMode::HandlerThreads => Ok(self.pager.engine()),
            FaultMode::Sigbus => self.signals.as_ref().map(Pager::engine).ok_or(Error::NoSigbus),
        }
    }

    /// Returns the engines of this swap, without those of groups.
    pub(crate) fn engines(&self) -> impl Iterator<Item = &'static Engine> + '_ {
        [Some(&self.pager), self.signals.as_ref()].into_iter().flatten().map(Pager::engine)
    }

    /// Whether system calls work on regions whose faults are served like this.
    pub(crate) fn serves_system_calls(&self, mode: FaultMode) -> bool {
        self.calls_hold() || mode == FaultMode::HandlerThreads && self.served.origins == Origins::All
    }

    /// Whether system calls hold what they use of regions.
    pub(crate) fn calls_hold(&self) -> bool {
        self.served.calls.is_some()
    }

    /// Returns whether the library may stand before system calls.
    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    /// Checks that the tables of a region of `bytes` would leave enough of the limit to work with.
    pub(crate) fn check_tables(&self, bytes: u64) -> Result<(), Error> {
        if bytes / METADATA_PART > self.available_limit() / 2 {
            return Err(Error::TooLarge {
                bytes,
                why: "the tables for it, a 128th of its size, would take more than half of the limit: raise the limit, or ask for less",
            });
        }
        Ok(())
    }
}

/// Which system calls work on memory that is away.
struct Served {
    /// Those whose faults the kernel tells of.
    origins: Origins,
    /// Those that hold what they use, if any do.
    calls: Option<&'static Calls>,
}

/// Opens what an engine needs: a userfaultfd, and the page map.
fn open_files(faults: Faults) -> Result<([OwnedFd; 2], Origins), Error> {
    let (userfault, origins) = Userfault::open_embedded(faults).map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => Error::NoUserfault(errno),
        Errno::INVAL | Errno::NOSYS => Error::OldKernel(errno),
        errno => Error::System { doing: "opening a userfaultfd", errno },
    })?;
    // SAFETY: the descriptor is new, and has no other owner.
    let userfault = unsafe { OwnedFd::from_raw_fd(userfault.0) };
    let pagemap = open("/proc/thread-self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::system("opening /proc/thread-self/pagemap"))?;
    Ok(([userfault, pagemap], origins))
}

//! What a swap and its regions share: the engines, and the limits that hold for them.

use crate::device::Prepared;
use crate::mapping::process;
use crate::overcommit::{Overcommit, WhenFull};
use crate::pager::{Descriptors, GroupPlace, Owners, Pager, Shared};
use crate::{Error, FaultMode, LEAST_LIMIT, sigbus};
use folioswap_group::devices::DeviceDescription;
use folioswap_group::nested::WHOLE;
use folioswap_pager::engine::Engine;
use folioswap_pager::kernel::uffd::{Faults, Origins, Userfault};
use folioswap_slots::DeviceMask;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Managed memory takes at most this part of its size in tables when all of it is swapped out.
const METADATA_PART: u64 = 128;

/// Who is to serve faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedBy {
    /// Threads of the engine.
    Threads,
    /// Those, and for some regions the threads that fault.
    Both,
}

/// What a swap is made of.
pub(crate) struct Parts {
    pub(crate) limit: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) faults: ServedBy,
    pub(crate) permitted: DeviceMask,
    /// All devices, by number; those that are not permitted without a file.
    pub(crate) devices: Vec<Prepared>,
}

pub(crate) struct Inner {
    /// First: their threads end before what they use goes.
    pager: Pager,
    /// For regions of [`FaultMode::Sigbus`].
    signals: Option<Pager>,
    _kept: Vec<OwnedFd>,
    /// Of a group within another; behind its members.
    place: Option<GroupPlace>,
    pub(crate) shared: Arc<Shared>,
    overcommit: Arc<Overcommit>,
    permitted: DeviceMask,
    /// The devices, and the descriptors of those that have one, in the table of the thread that grants.
    devices: Vec<(DeviceDescription, RawFd)>,
    origins: Origins,
    process: u32,
    pub(crate) closed: AtomicBool,
    pinned_bytes: AtomicU64,
    /// What of the limit is set aside.
    aside_bytes: AtomicU64,
    limit: AtomicU64,
    /// The swap that it is a group within. Last: what all of them share is its.
    parent: Option<Arc<Inner>>,
}

impl Inner {
    /// Starts the engines.
    pub(crate) fn new(shared: Arc<Shared>, parent: Option<Arc<Inner>>, parts: Parts) -> Result<Self, Error> {
        let Parts { limit, when_full, faults, permitted, devices } = parts;
        let place = match &parent {
            Some(parent) => {
                Some(GroupPlace::new(&shared, parent.group(), limit).ok_or(Error::TooManyGroups)?)
            }
            None => None,
        };
        let overcommit = Arc::new(Overcommit::new(when_full));
        let mut owners: Owners =
            vec![(place.as_ref().map_or(WHOLE, |place| place.number), Arc::clone(&overcommit))];
        let around = std::iter::successors(parent.as_deref(), |inner| inner.parent.as_deref());
        owners.extend(around.map(|inner| (inner.group(), Arc::clone(&inner.overcommit))));
        let descriptor = |device: &Prepared| device.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let described: Vec<_> =
            devices.iter().map(|device| (device.description, descriptor(device))).collect();
        let start = |faults| start(&shared, owners.clone(), &described, permitted, faults);
        // Threads have copies of all descriptors. Where threads of the program serve faults, ours stay open; else they are closed with `opened`.
        let (pager, opened, origins) = start(Faults::Messages)?;
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
            place,
            shared,
            overcommit,
            permitted,
            devices: described,
            origins,
            process: process(),
            closed: AtomicBool::new(false),
            pinned_bytes: AtomicU64::new(0),
            aside_bytes: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            parent,
        })
    }

    /// Is the caller in the process that made it?
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process == process() { Ok(()) } else { Err(Error::Forked) }
    }

    /// May anything still be made in it?
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Its number in the segment.
    pub(crate) fn group(&self) -> u32 {
        self.place.as_ref().map_or(WHOLE, |place| place.number)
    }

    /// It, and those that it is within, from the inside out.
    fn around(&self) -> impl Iterator<Item = &Inner> {
        std::iter::successors(Some(self), |inner| inner.parent.as_deref())
    }

    /// The devices that it may use, of all those that there are.
    pub(crate) fn permitted(&self) -> DeviceMask {
        self.permitted
    }

    /// How many devices there are.
    pub(crate) fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// The devices as they were given, and the files of these, opened anew.
    pub(crate) fn devices_again(&self, permitted: DeviceMask) -> Result<Vec<Prepared>, Error> {
        let thread = self.pager.granting_thread();
        let opened = |(id, &(description, descriptor)): (_, &(DeviceDescription, RawFd))| {
            let file = if descriptor >= 0 && permitted.contains(id) {
                // The program has no descriptor of them, and could have closed it.
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

    /// The limit as it is now, in bytes: what was asked for, unless it gave way.
    pub(crate) fn limit_now(&self) -> u64 {
        self.shared.segment.segment().limit_of(self.group()).load(Relaxed)
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&self, limit: u64) -> Result<(), Error> {
        let least = LEAST_LIMIT + self.aside_bytes.load(Relaxed);
        if limit < least {
            return Err(Error::LimitTooSmall { given: limit, least });
        }
        self.limit.store(limit, Relaxed);
        self.shared.segment.segment().limit_of(self.group()).store(limit, Relaxed);
        self.wake_evictors();
        Ok(())
    }

    /// What regions may take at most: the least of its limit and those around it, each without what is set aside of it.
    pub(crate) fn room(&self) -> u64 {
        let room = |inner: &Inner| inner.limit.load(Relaxed).saturating_sub(inner.aside_bytes.load(Relaxed));
        self.around().map(room).min().unwrap_or(0)
    }

    /// Times that its limit gave way.
    pub(crate) fn times_exceeded(&self) -> u64 {
        self.overcommit.times_exceeded()
    }

    /// Counts bytes as pinned, here and in all around it.
    pub(crate) fn add_pinned(&self, bytes: u64) -> Result<(), Error> {
        let most =
            |inner: &Inner| inner.limit.load(Relaxed).saturating_sub(inner.aside_bytes.load(Relaxed)) / 2;
        self.add(|inner| &inner.pinned_bytes, bytes, most).map_err(|(pinned, limit)| Error::PinTooLarge {
            bytes,
            pinned,
            limit,
        })
    }

    /// The opposite of [`Inner::add_pinned`].
    pub(crate) fn take_pinned(&self, bytes: u64) {
        self.around().for_each(|inner| {
            inner.pinned_bytes.fetch_sub(bytes, AcqRel);
        });
    }

    /// Counts bytes as set aside, here and in all around it.
    pub(crate) fn add_aside(&self, bytes: u64) -> Result<(), Error> {
        let most = |inner: &Inner| inner.limit.load(Relaxed).saturating_sub(LEAST_LIMIT);
        self.add(|inner| &inner.aside_bytes, bytes, most).map_err(|(aside, limit)| Error::SetAside {
            bytes,
            aside,
            limit,
        })?;
        let segment = self.shared.segment.segment();
        segment.charge_outside(self.group(), bytes);
        segment.header.unmanaged_bytes.fetch_add(bytes, Relaxed);
        self.wake_evictors();
        Ok(())
    }

    /// The opposite of [`Inner::add_aside`].
    pub(crate) fn take_aside(&self, bytes: u64) {
        let segment = self.shared.segment.segment();
        segment.header.unmanaged_bytes.fetch_sub(bytes, Relaxed);
        segment.uncharge_outside(self.group(), bytes);
        self.around().for_each(|inner| {
            inner.aside_bytes.fetch_sub(bytes, AcqRel);
        });
    }

    /// Adds to a count of each around it, as far as the sum stays within `most`; else nothing is changed, and what the count was and the limit are
    /// returned.
    fn add(
        &self,
        count: impl Fn(&Inner) -> &AtomicU64,
        bytes: u64,
        most: impl Fn(&Inner) -> u64,
    ) -> Result<(), (u64, u64)> {
        for (depth, inner) in self.around().enumerate() {
            let fits = |now: u64| now.checked_add(bytes).filter(|all| *all <= most(inner));
            if let Err(now) = count(inner).fetch_update(AcqRel, Relaxed, fits) {
                self.around().take(depth).for_each(|inner| {
                    count(inner).fetch_sub(bytes, AcqRel);
                });
                return Err((now, inner.limit.load(Relaxed)));
            }
        }
        Ok(())
    }

    /// Has the engines look at once, after a limit or what is set aside of it was changed.
    fn wake_evictors(&self) {
        self.around().flat_map(Inner::engines).for_each(Engine::wake_evictor);
    }

    /// Whoever serves regions of this mode.
    pub(crate) fn engine(&self, mode: FaultMode) -> Result<&'static Engine, Error> {
        match mode {
            FaultMode::HandlerThreads => Ok(self.pager.engine()),
            FaultMode::Sigbus => self.signals.as_ref().map(Pager::engine).ok_or(Error::NoSigbus),
        }
    }

    /// All engines of its own.
    pub(crate) fn engines(&self) -> impl Iterator<Item = &'static Engine> + '_ {
        [Some(&self.pager), self.signals.as_ref()].into_iter().flatten().map(Pager::engine)
    }

    pub(crate) fn serves_system_calls(&self) -> bool {
        self.origins == Origins::All
    }

    /// Would the tables for a region of so many bytes leave room to work?
    pub(crate) fn check_tables(&self, bytes: u64) -> Result<(), Error> {
        if bytes / METADATA_PART > self.room() / 2 {
            return Err(Error::TooLarge {
                bytes,
                why: "the tables for it, a 128th of its size, would take more than half of the limit: raise the limit, or ask for less",
            });
        }
        Ok(())
    }
}

/// Starts an engine; returns what was opened for it besides.
fn start(
    shared: &Arc<Shared>,
    owners: Owners,
    devices: &[(DeviceDescription, RawFd)],
    permitted: DeviceMask,
    faults: Faults,
) -> Result<(Pager, Vec<OwnedFd>, Origins), Error> {
    let (userfault, origins) = Userfault::open_embedded(faults).map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => Error::NoUserfault(errno),
        Errno::INVAL | Errno::NOSYS => Error::OldKernel(errno),
        errno => Error::System { doing: "opening a userfaultfd", errno },
    })?;
    // SAFETY: just made, and nobody else's.
    let userfault = unsafe { OwnedFd::from_raw_fd(userfault.0) };
    let pagemap = open("/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::system("opening /proc/self/pagemap"))?;
    let descriptors = Descriptors {
        faults,
        userfault: userfault.as_raw_fd(),
        pagemap: pagemap.as_raw_fd(),
        devices: devices.to_vec(),
        permitted,
    };
    let pager = Pager::start(shared, owners, descriptors)?;
    Ok((pager, vec![userfault, pagemap], origins))
}

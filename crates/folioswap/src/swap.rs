//! The swap: a limit, devices, and the engines that keep it.

use crate::clusters::Clusters;
use crate::device::{self, Device};
use crate::inner::{Inner, Parts, ServedBy};
use crate::mapping::{Mapping, SegmentMapping, process};
use crate::overcommit::WhenFull;
use crate::pager::Shared;
use crate::size::show;
use crate::{Error, GroupBuilder, IntoBytes, MemoryScope, Region, Statistics};
use folioswap_group::folio_orders::FolioOrders;
use folioswap_group::protocol::GROUP_VARIABLE;
use folioswap_slots::DeviceMask;
use std::fmt;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex};

/// The least limit: 8 MiB. Below it the engine's working memory does not fit.
pub const LEAST_LIMIT: u64 = 8 << 20;

/// How the faults on a region's memory are served.
///
/// ```
/// use folioswap::{FaultMode, Swap};
///
/// let swap = Swap::builder().limit("64M").build()?;
/// assert_eq!(swap.region(4096)?.fault_mode(), FaultMode::HandlerThreads);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FaultMode {
    /// A thread of the engine serves them. System calls on memory that is away wait for it too (but see [`Swap::serves_system_calls`]).
    #[default]
    HandlerThreads,
    /// The thread that faults serves them itself, in a handler of SIGBUS: no other thread has to be woken, so a fault takes some six tenths of the time.
    /// Only in a swap that was made for it ([`SwapBuilder::sigbus`]).
    ///
    /// * A system call on memory that is away fails with EFAULT, and a read(2) may be short: [`Region::pin`] before it.
    /// * The process's SIGBUS is ours; an action that was installed before is called for all that is not a region's fault. Who installs one
    ///   later must do the same for ours. A thread that blocks SIGBUS must not touch such a region.
    /// * The handler runs on the stack of the thread, of which it takes up to 64 KiB.
    /// * The program must leave the swap's descriptors open.
    Sigbus,
}

/// Says what a [`Swap`] is to be. Made by [`Swap::builder`].
///
/// ```
/// use folioswap::{Device, Swap};
///
/// let swap = Swap::builder().limit("256M").device(Device::zram()).build()?;
/// # drop(swap);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `build`"]
pub struct SwapBuilder {
    limit: Option<Result<u64, Error>>,
    devices: Vec<Device>,
    when_full: WhenFull,
    scope: MemoryScope,
    sigbus: bool,
    validates: bool,
}

impl SwapBuilder {
    /// What managed memory may occupy: resident pages of all regions, the compressed store and the tables ([`MemoryScope`] can leave these out). The
    /// rest of the process does not count. At least [`LEAST_LIMIT`].
    ///
    /// It is kept to within a fortieth and 8 MiB.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit(64 << 20).build()?;
    /// assert_eq!(swap.limit(), 64 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn limit(mut self, limit: impl IntoBytes) -> Self {
        self.limit = Some(limit.into_bytes());
        self
    }

    /// Adds a device. Without any there are compressed RAM, and behind it a file in `/var/tmp` of at most half of that disk's free space.
    ///
    /// ```
    /// use folioswap::{Device, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").device(Device::file("/var/tmp").size("1G")).build()?;
    /// # drop(swap);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn device(mut self, device: Device) -> Self {
        self.devices.push(device);
        self
    }

    /// What happens when nothing can be swapped out any more. Unless it is called, the limit gives way.
    ///
    /// ```
    /// use folioswap::{Swap, WhenFull};
    ///
    /// let swap = Swap::builder().limit("64M").when_full(WhenFull::Exceed).build()?;
    /// # drop(swap);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// What the limit counts, that of groups within it too. Unless it is called, everything that the swap takes.
    ///
    /// ```
    /// use folioswap::{MemoryScope, Swap};
    ///
    /// let swap = Swap::builder().limit("16M").scope(MemoryScope::Resident).build()?;
    /// let mut region = swap.region("48M")?;
    /// region.as_mut_slice().fill(1);
    /// assert!(swap.statistics().charge() <= 16 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn scope(mut self, scope: MemoryScope) -> Self {
        self.scope = scope;
        self
    }

    /// Regions of [`FaultMode::Sigbus`] can be made: takes a second engine, with three threads, under the same limit, and the process's SIGBUS.
    ///
    /// ```
    /// use folioswap::{FaultMode, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").sigbus().build()?;
    /// let mut region = swap.region_with("1M", FaultMode::Sigbus)?;
    /// region.as_mut_slice().fill(1);
    /// region.page_out(..)?;
    /// assert_eq!(region.as_slice()[4096], 1);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn sigbus(mut self) -> Self {
        self.sigbus = true;
        self
    }

    /// Has the engine check all its invariants now and then, for tests: `validations` and `violations` among the counters tell.
    #[doc(hidden)]
    pub fn validate(mut self) -> Self {
        self.validates = true;
        self
    }

    /// Makes the swap: its files, and three threads that serve it.
    ///
    /// # Errors
    /// What was asked for cannot be had: see [`Error`]. Nothing is left behind.
    ///
    /// ```
    /// use folioswap::{Error, Swap};
    ///
    /// assert!(matches!(Swap::builder().build(), Err(Error::NoLimit)));
    /// ```
    pub fn build(self) -> Result<Swap, Error> {
        let limit = self.limit.ok_or(Error::NoLimit)??;
        if limit < LEAST_LIMIT {
            return Err(Error::LimitTooSmall { given: limit, least: LEAST_LIMIT });
        }
        if Swap::is_managed_already() {
            return Err(Error::UnderRun);
        }
        let devices = if self.devices.is_empty() { device::built_in() } else { self.devices };
        let devices = device::prepare(devices)?;
        let segment = SegmentMapping::new()?;
        let descriptions = devices.iter().map(|device| device.description);
        segment.segment().initialise(process(), limit, self.scope.of_segment(), descriptions);
        segment.segment().set_folio_orders(FolioOrders::ALL);
        segment.segment().header.validate.store(u32::from(self.validates), Relaxed);
        let clusters = Mutex::new(Clusters::new(&devices));
        let shared = Arc::new(Shared { segment, clusters, places: Mutex::new(()) });
        let faults = if self.sigbus { ServedBy::Both } else { ServedBy::Threads };
        let parts = Parts { limit, when_full: self.when_full, faults, permitted: DeviceMask::ALL, devices };
        Ok(Swap(Arc::new(Inner::new(shared, None, parts)?)))
    }
}

/// A limit, the devices behind it, and the engine that keeps it. Cheap to clone: all clones are the same swap.
///
/// It lives until it, all of its regions and all groups within it are dropped; then its threads end, and its files and memory go back. There may
/// be several in a process, each with a limit and devices of its own; [`Swap::group`] makes one within another.
///
/// **Fork**: a forked child has none of the regions' memory (MADV_DONTFORK): touching it there is a SIGSEGV, never wrong bytes, and every
/// method says [`Error::Forked`]. It may make a swap of its own.
///
/// ```
/// use folioswap::Swap;
///
/// let swap = Swap::builder().limit("32M").build()?;
/// let mut region = swap.region("64M")?;
/// region.as_mut_slice().fill(7);
/// assert!(region.as_slice().iter().all(|&byte| byte == 7));
/// assert!(swap.statistics().resident_bytes() <= 32 << 20);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone)]
pub struct Swap(pub(crate) Arc<Inner>);

impl fmt::Debug for Swap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Swap").field("limit", &show(self.limit())).finish_non_exhaustive()
    }
}

impl Swap {
    /// Begins to make a swap. A limit is all that must be given.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// # drop(swap);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn builder() -> SwapBuilder {
        SwapBuilder {
            limit: None,
            devices: Vec::new(),
            when_full: WhenFull::default(),
            scope: MemoryScope::default(),
            sigbus: false,
            validates: false,
        }
    }

    /// Does this process run under `folioswap run`, so that all of its memory is managed already and [`SwapBuilder::build`] refuses?
    ///
    /// ```
    /// if !folioswap::Swap::is_managed_already() {
    ///     let swap = folioswap::Swap::builder().limit("64M").build()?;
    ///     # drop(swap);
    /// }
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn is_managed_already() -> bool {
        std::env::var_os(GROUP_VARIABLE).is_some()
    }

    /// Begins to make a group within it: a swap with a limit of its own, whose memory counts towards the limits of both, and which may use only
    /// some of the devices.
    ///
    /// ```
    /// use folioswap::Swap;
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let guests = swap.group().limit("24M").build()?;
    /// let mut region = guests.region("48M")?;
    /// region.as_mut_slice().fill(1);
    /// assert!(swap.statistics().charge() >= guests.statistics().charge());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn group(&self) -> GroupBuilder {
        GroupBuilder::new(self.clone())
    }

    /// Makes a region of `bytes` (rounded up to pages), all zero. It takes memory only where it is touched. Cost: a few system calls, and
    /// a wait until the evictor has noted it.
    ///
    /// # Errors
    /// [`Error::ZeroSize`], [`Error::TooLarge`], [`Error::Closed`], [`Error::Forked`]; [`Error::System`] where the system has no address space
    /// or no further mapping.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("1G")?;
    /// assert_eq!(region.len(), 1 << 30);
    /// assert!(swap.region(0).is_err());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn region(&self, bytes: impl IntoBytes) -> Result<Region, Error> {
        self.region_with(bytes, FaultMode::HandlerThreads)
    }

    /// Makes a region whose faults are served in this way.
    ///
    /// # Errors
    /// As [`Swap::region`]; [`Error::NoSigbus`] where the swap was not made for it.
    ///
    /// ```
    /// use folioswap::{Error, FaultMode, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// assert!(matches!(swap.region_with("1M", FaultMode::Sigbus), Err(Error::NoSigbus)));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn region_with(&self, bytes: impl IntoBytes, mode: FaultMode) -> Result<Region, Error> {
        let bytes = bytes.into_bytes()?;
        self.0.check_process()?;
        self.0.check_open()?;
        if bytes == 0 {
            return Err(Error::ZeroSize);
        }
        self.0.check_tables(bytes)?;
        let engine = self.0.engine(mode)?;
        let mapping = Mapping::new(bytes as usize)?;
        Region::new(Arc::clone(&self.0), engine, mode, mapping, bytes as usize)
    }

    /// What all regions, the store and the tables may occupy now, in bytes: as given, unless devices were full ([`WhenFull::Exceed`]).
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.limit(), 64 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn limit(&self) -> u64 {
        self.0.limit_now()
    }

    /// Changes the limit. Where it becomes smaller, memory is swapped out in the background from now on.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`] (also where more is set aside of it: [`crate::ShmemBuilder::within`]), [`Error::Size`], [`Error::Forked`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// swap.set_limit("32M")?;
    /// assert_eq!(swap.limit(), 32 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn set_limit(&self, limit: impl IntoBytes) -> Result<(), Error> {
        let limit = limit.into_bytes()?;
        self.0.check_process()?;
        self.0.set_limit(limit)
    }

    /// Do system calls (read(2) into a region, write(2) from it) work on memory that is away? Not where the process may not use userfaultfd but
    /// for faults of user mode, as without privilege: there such a call fails with EFAULT, and a read(2) may be short. [`Region::pin`]
    /// before it makes it work.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("1M")?;
    /// if !swap.serves_system_calls() {
    ///     let pinned = region.pin(..4096)?;
    ///     // ... read(2) into it ...
    ///     # drop(pinned);
    /// }
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn serves_system_calls(&self) -> bool {
        self.0.serves_system_calls()
    }

    /// What the engine has done and holds.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// println!("{}", swap.statistics());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.0)
    }

    /// No region can be made from now on, by any clone. Those there are go on until they are dropped, and the engine with them.
    ///
    /// ```
    /// use folioswap::{Error, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// swap.close();
    /// assert!(matches!(swap.region(1), Err(Error::Closed)));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn close(&self) {
        self.0.closed.store(true, Release);
    }
}

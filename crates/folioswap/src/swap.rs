//! The swap: a limit, devices, and the engines that keep the limit.

use crate::clusters::Clusters;
use crate::device::{self, Device};
use crate::inner::{Inner, Parts, ServedBy};
use crate::mapping::{GroupMapping, Mapping, process};
use crate::overcommit::WhenFull;
use crate::pager::SwapTree;
use crate::size::show;
use crate::thrashing::Notices;
use crate::{Error, Gate, GroupBuilder, IntoBytes, MemoryScope, Region, Statistics};
use folioswap_devices::check_page_size;
use folioswap_group::protocol::GROUP_VARIABLE;
use folioswap_slots::DeviceMask;
use std::fmt;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex};

/// The smallest limit: 8 MiB. The engine's working memory does not fit into less.
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
    /// A thread of the engine serves them. System calls on memory that is swapped out wait for that
    /// thread too (with the exception in [`Swap::serves_system_calls`]).
    #[default]
    HandlerThreads,
    /// The faulting thread serves its own fault, in a handler of SIGBUS. No other thread has to be
    /// woken, so a fault takes about six tenths of the time. Only a swap that was built with
    /// [`SwapBuilder::sigbus`] has such regions.
    ///
    /// * A system call on memory that is swapped out fails with EFAULT, and a read(2) may be short:
    ///   call [`Region::pin`] before it, or let the [`Gate`] do it.
    /// * The engine installs the process's handler of SIGBUS, and calls the action that was
    ///   installed before for every signal that is not a fault in a region. A program that installs
    ///   a handler later must pass the engine's faults on in the same way. A thread that blocks
    ///   SIGBUS must not touch such a region.
    /// * The handler runs on the stack of the faulting thread and takes up to 64 KiB of it.
    /// * The program must leave the swap's descriptors open.
    Sigbus,
}

/// The settings of a [`Swap`] before it is made. Returned by [`Swap::builder`].
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
    gate: Gate,
    validates: bool,
}

impl SwapBuilder {
    /// Sets the limit, in bytes: at least [`LEAST_LIMIT`]. It counts the resident pages of all
    /// regions, pages that wait to be written, the compressed store, devices of plain RAM, and the
    /// tables (at most a 128th of the managed memory). [`MemoryScope`] can leave out everything but
    /// resident memory. The rest of the process does not count.
    ///
    /// The engine keeps the limit to within a fortieth of it plus 8 MiB.
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

    /// Adds a device. Without this call the swap has compressed RAM, and behind it a file in
    /// `/var/tmp` of at most half of that disk's free space.
    ///
    /// ```
    /// use folioswap::{Device, Swap};
    ///
    /// let file = Device::file("/var/tmp").size("1G");
    /// let swap = Swap::builder().limit("64M").device(file).build()?;
    /// # drop(swap);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn device(mut self, device: Device) -> Self {
        self.devices.push(device);
        self
    }

    /// Sets the reaction when nothing more can be swapped out. Without this call the limit gives
    /// way.
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

    /// Sets which memory the limit counts, for this swap and all groups within it. Without this
    /// call it counts everything that the swap takes.
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

    /// Makes it possible to have regions of [`FaultMode::Sigbus`]. This takes a second engine, with
    /// three more threads, under the same limit, and the process's handler of SIGBUS.
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

    /// Sets whether the library may stand before the system calls of the process, so that they work
    /// on regions without privilege too. Without this call: [`Gate::Auto`].
    ///
    /// ```
    /// use folioswap::{Gate, Swap};
    ///
    /// let swap = Swap::builder().limit("16M").gate(Gate::Always).build()?;
    /// let mut region = swap.region("64M")?;
    /// std::io::Read::read_exact(&mut std::fs::File::open("/dev/zero")?, region.as_mut_slice())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Has the engine check all its invariants from time to time, for tests. The counters
    /// `validations` and `violations` give the result.
    #[doc(hidden)]
    pub fn validate(mut self) -> Self {
        self.validates = true;
        self
    }

    /// Makes the swap: its files, and the three threads that serve it.
    ///
    /// # Errors
    /// See [`Error`]. A failed call leaves nothing behind.
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
        check_page_size(rustix::param::page_size())?;
        if Swap::is_managed_already() {
            return Err(Error::UnderRun);
        }
        let devices = if self.devices.is_empty() { device::built_in() } else { self.devices };
        let devices = device::prepare(devices)?;
        let memory = GroupMapping::new()?;
        let descriptions = devices.iter().map(|device| device.description);
        memory.writer().initialise(process(), limit, self.scope.of_group(), descriptions);
        if self.validates {
            memory.writer().want_validation();
        }
        let clusters = Mutex::new(Clusters::new(&devices));
        let tree = Arc::new(SwapTree { memory, clusters, membership: Mutex::new(()) });
        let faults = if self.sigbus { ServedBy::Both } else { ServedBy::Threads };
        let Self { when_full, gate, .. } = self;
        let parts = Parts { limit, when_full, faults, gate, permitted: DeviceMask::ALL, devices };
        Ok(Swap(Arc::new(Inner::new(tree, None, parts)?)))
    }
}

/// A limit, the devices behind it, and the engine that keeps it. A clone is cheap and is the same
/// swap.
///
/// The swap lives until it, all of its regions and all groups within it are dropped. Then its
/// threads end, and its files and memory are released. A process may have several swaps, each with
/// a limit and devices of its own; [`Swap::group`] makes one within another.
///
/// **Fork**: a forked child has none of the regions' memory (MADV_DONTFORK). A touch of it in the
/// child is a SIGSEGV, never wrong bytes; every method returns [`Error::Forked`], and dropping the
/// copies does nothing. The parent is undisturbed. The child may make a swap of its own.
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
    /// Returns a builder. The limit is the only setting that must be given.
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
            gate: Gate::default(),
            validates: false,
        }
    }

    /// Returns whether this process runs under `folioswap run`. All of its memory is managed then,
    /// and [`SwapBuilder::build`] returns [`Error::UnderRun`].
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

    /// Returns a builder of a group within this swap. A group is a swap with a limit of its own,
    /// whose memory counts towards both limits, and which may be restricted to some of the devices.
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

    /// Makes a region of `bytes`, rounded up to pages, all zero. The region takes memory only where
    /// it is touched. Cost: a few system calls, and a wait until the evictor has noted the region.
    ///
    /// # Errors
    /// [`Error::ZeroSize`], [`Error::TooLarge`], [`Error::Closed`], [`Error::Forked`];
    /// [`Error::System`] where the process has no address space or no mapping left.
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

    /// Makes a region whose faults are served as `mode` says.
    ///
    /// # Errors
    /// Those of [`Swap::region`]; [`Error::NoSigbus`] without [`SwapBuilder::sigbus`].
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

    /// Returns the limit in bytes: the one that was set, unless it gave way since
    /// ([`WhenFull::Exceed`]).
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.limit(), 64 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn limit(&self) -> u64 {
        self.0.limit_now()
    }

    /// Changes the limit. A smaller limit makes the evictor swap memory out in the background.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`], also where [`crate::ShmemBuilder::within`] has set more aside;
    /// [`Error::Size`], [`Error::Forked`].
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

    /// Lets pages that are swapped out from now on go to the devices of these tiers alone: their
    /// priorities with commas between them, or `all`. It holds for the groups within this one too.
    /// Pages that are on other devices stay there until they are wanted.
    ///
    /// # Errors
    /// [`Error::Tiers`]; [`Error::NoDevices`], where this group, or one within it, would have no
    /// device that takes pages; [`Error::Forked`]. The tiers are as before.
    ///
    /// ```
    /// use folioswap::{Device, Swap};
    ///
    /// let swap = Swap::builder()
    ///     .limit("64M")
    ///     .device(Device::zram().priority(10))
    ///     .device(Device::file("/var/tmp").size("1G").priority(0))
    ///     .build()?;
    /// swap.set_tiers("0")?; // the file alone
    /// swap.set_tiers("all")?;
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn set_tiers(&self, tiers: &str) -> Result<(), Error> {
        self.0.check_process()?;
        self.0.set_tiers(tiers)
    }

    /// Returns whether system calls, such as read(2) into a region and write(2) from it, work on
    /// memory that is swapped out. They do with privilege, and else by the [`Gate`], where the C
    /// library makes them. Where they do not, such a call fails with EFAULT, and a read(2) may be
    /// short. [`Region::pin`] before the call makes it work.
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
        self.0.serves_system_calls(FaultMode::HandlerThreads)
    }

    /// Returns the figures of this moment.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// println!("{}", swap.statistics());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.0)
    }

    /// Chooses whether the library may write a line to standard error when the program thrashes. A
    /// group within the swap has a choice of its own.
    ///
    /// ```
    /// use folioswap::{Notices, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// swap.set_notices(Notices::Silent);
    /// assert_eq!(swap.statistics().counter("thrashing_ms"), Some(0));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn set_notices(&self, notices: Notices) {
        self.0.thrashing.set_notices(notices);
    }

    /// Refuses further regions, from any clone. Existing regions and the engine live on until they
    /// are dropped.
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

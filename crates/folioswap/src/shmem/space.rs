//! The space that objects live in: a limit, and the devices behind it.

use super::{HugePolicy, ShmemObject, ShmemStatistics};
use crate::aside::Aside;
use crate::device::{self, Device, SwapFile};
use crate::mapping::process;
use crate::{Error, IntoBytes, Swap};
use folioswap_shmem::{CreateError, Options, SwapDevice};
use rustix::io::Errno;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The settings of a [`ShmemSpace`] before it is made. Returned by [`ShmemSpace::builder`].
///
/// ```
/// use folioswap::{Device, ShmemSpace};
///
/// let space = ShmemSpace::builder().limit("64M").device(Device::zram()).build()?;
/// # drop(space);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `build`"]
pub struct ShmemBuilder {
    limit: Option<Result<u64, Error>>,
    size: Option<Result<u64, Error>>,
    devices: Vec<Device>,
    within: Option<Swap>,
}

impl ShmemBuilder {
    /// Sets the limit of all objects together, in bytes: resident folios, the compressed store and
    /// the tables. At least [`ShmemSpace::LEAST_LIMIT`].
    ///
    /// ```
    /// let space = folioswap::ShmemSpace::builder().limit(64 << 20).build()?;
    /// assert_eq!(space.statistics()?.limit(), 64 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn limit(mut self, limit: impl IntoBytes) -> Self {
        self.limit = Some(limit.into_bytes());
        self
    }

    /// Sets the most content of all objects together, resident or not (tmpfs `size=`). Without this
    /// call the content is bounded by the room in memory and swap.
    ///
    /// ```
    /// use folioswap::{ShmemError, ShmemSpace};
    ///
    /// let space = ShmemSpace::builder().limit("8M").size("1M").build()?;
    /// assert_eq!(space.object()?.allocate(0, 2 << 20), Err(ShmemError::NoSpace));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn size(mut self, size: impl IntoBytes) -> Self {
        self.size = Some(size.into_bytes());
        self
    }

    /// Adds a device. A space has compressed RAM, named or not, and at most one file behind it.
    /// Without any device the file is one in `/var/tmp`, of at most half of that disk's free space.
    /// With [`Device::zram`] alone there is no file, and pages that do not compress stay within the
    /// limit.
    ///
    /// ```
    /// use folioswap::{Device, Error, ShmemSpace};
    ///
    /// let file = Device::file("/var/tmp").size("64M");
    /// let space = ShmemSpace::builder().limit("8M").device(file).build()?;
    /// # drop(space);
    /// let refused = ShmemSpace::builder().limit("8M").device(Device::ram("64M")).build();
    /// assert!(matches!(refused, Err(Error::ShmemDevice(_))));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn device(mut self, device: Device) -> Self {
        self.devices.push(device);
        self
    }

    /// Sets the space's limit aside from the limit of `swap`, as long as the space lives. Regions
    /// of the swap have the rest, so both together keep within one limit. The devices are still the
    /// space's own.
    ///
    /// ```
    /// use folioswap::{Device, ShmemSpace, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let builder = ShmemSpace::builder().limit("16M").device(Device::zram());
    /// let space = builder.within(&swap).build()?;
    /// assert!(swap.statistics().charge() >= 16 << 20);
    /// # drop(space);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn within(mut self, swap: &Swap) -> Self {
        self.within = Some(swap.clone());
        self
    }

    /// Makes the space: its file, and a thread that keeps some memory free.
    ///
    /// # Errors
    /// [`Error::NoLimit`], [`Error::LimitTooSmall`], [`Error::Size`], [`Error::ShmemDevice`],
    /// [`Error::File`], [`Error::SetAside`], [`Error::UnderRun`], [`Error::System`]. A failed call
    /// leaves nothing behind.
    ///
    /// ```
    /// use folioswap::{Error, ShmemSpace};
    ///
    /// assert!(matches!(ShmemSpace::builder().build(), Err(Error::NoLimit)));
    /// let refused = ShmemSpace::builder().limit("1M").build();
    /// assert!(matches!(refused, Err(Error::LimitTooSmall { .. })));
    /// ```
    pub fn build(self) -> Result<ShmemSpace, Error> {
        let limit = self.limit.ok_or(Error::NoLimit)??;
        let size = self.size.transpose()?;
        if limit < ShmemSpace::LEAST_LIMIT {
            return Err(Error::LimitTooSmall { given: limit, least: ShmemSpace::LEAST_LIMIT });
        }
        if Swap::is_managed_already() {
            return Err(Error::UnderRun);
        }
        let swap_file = device::behind_shmem(self.devices)?;
        let aside = self.within.map(|swap| swap.set_aside(limit)).transpose()?;
        let failed = |error| match error {
            CreateError::LimitTooSmall { given, least } => Error::LimitTooSmall { given, least },
            CreateError::SwapFile(error) => Error::File(error),
            // The list below has only a store and a file.
            CreateError::Devices => Error::TooManyDevices(2),
            CreateError::System { doing, error } => Error::System {
                doing,
                errno: error.raw_os_error().map_or(Errno::NOMEM, Errno::from_raw_os_error),
            },
        };
        let mut devices = vec![SwapDevice::store(1)];
        if let Some(SwapFile { directory, max }) = swap_file {
            devices.push(SwapDevice::temporary(&directory, max, 0).map_err(failed)?);
        }
        let options = Options { limit, limit_max: limit, size, devices };
        let space = folioswap_shmem::ShmemSpace::new(options).map_err(failed)?;
        Ok(ShmemSpace(Arc::new(Inner { space: ManuallyDrop::new(space), process: process(), _aside: aside })))
    }
}

/// The state that a space and its objects share.
pub(super) struct Inner {
    pub(super) space: ManuallyDrop<Arc<folioswap_shmem::ShmemSpace>>,
    process: u32,
    /// Declared last, so that the bytes are given back after the space has gone.
    _aside: Option<Aside>,
}

impl Inner {
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == process()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A forked child does not have the thread that drop would wait for, and threads that it
        // does not have may hold the locks.
        if self.is_of_this_process() {
            // SAFETY: dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.space) };
        }
    }
}

/// A limit for the contents of objects, and the devices that cold contents go to: compressed RAM
/// within the limit, and a file behind it. It is the engine of `folioswap mount` inside a program.
/// A clone is cheap and is the same space. The space ends when it and all of its objects are
/// dropped.
///
/// **Beside a [`Swap`]**: a space is an engine with a limit and devices of its own, because
/// contents that calls read and write need no page faults. [`ShmemBuilder::within`] sets its limit
/// aside from that of a swap, so that one limit holds for both.
///
/// **There is no mapping**: folios leave and come back at another address, under a lock that each
/// call takes, so the content has no lasting address. Use a [`crate::Region`] for contents that are
/// used as memory; [`ShmemObject::read_with`] lends bytes without a copy.
///
/// **Fork**: a child cannot use the space; every method returns [`crate::ShmemError::Forked`] or
/// [`Error::Forked`], and dropping the copy does nothing. The file's descriptor is in the program's
/// table and must be left open.
///
/// ```
/// use folioswap::ShmemSpace;
///
/// let space = ShmemSpace::builder().limit("16M").build()?;
/// let object = space.object()?;
/// for page in 0..16 << 10 {
///     object.write(page * 4096, &page.to_ne_bytes())?;
/// }
/// assert!(space.statistics()?.charge() <= 16 << 20);
/// let mut number = [0; 8];
/// object.read(1234 * 4096, &mut number)?;
/// assert_eq!(u64::from_ne_bytes(number), 1234);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ShmemSpace(pub(super) Arc<Inner>);

impl fmt::Debug for ShmemSpace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ShmemSpace").field(&*self.0.space).finish()
    }
}

impl ShmemSpace {
    /// The smallest limit of a space: 4 MiB.
    pub const LEAST_LIMIT: u64 = Options::LEAST_LIMIT;

    /// Returns a builder. The limit is the only setting that must be given.
    ///
    /// ```
    /// let space = folioswap::ShmemSpace::builder().limit("64M").build()?;
    /// # drop(space);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn builder() -> ShmemBuilder {
        ShmemBuilder { limit: None, size: None, devices: Vec::new(), within: None }
    }

    /// Makes an empty object of size 0 whose new pages are single pages.
    ///
    /// # Errors
    /// [`Error::Forked`].
    ///
    /// ```
    /// let space = folioswap::ShmemSpace::builder().limit("64M").build()?;
    /// assert_eq!(space.object()?.size(), 0);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn object(&self) -> Result<ShmemObject, Error> {
        self.object_with(HugePolicy::Never)
    }

    /// Makes an empty object whose new pages come in folios as `huge` says (tmpfs `huge=`).
    ///
    /// # Errors
    /// [`Error::Forked`].
    ///
    /// ```
    /// use folioswap::{HugePolicy, ShmemSpace};
    ///
    /// let space = ShmemSpace::builder().limit("64M").build()?;
    /// let object = space.object_with(HugePolicy::Always)?;
    /// object.write(0, &vec![1; 4 << 20])?;
    /// object.page_out()?;
    /// assert_eq!(space.statistics()?.counter("2048kB/swpout"), Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn object_with(&self, huge: HugePolicy) -> Result<ShmemObject, Error> {
        if self.0.is_of_this_process() {
            Ok(ShmemObject::new(Arc::clone(&self.0), huge))
        } else {
            Err(Error::Forked)
        }
    }

    /// Returns the figures of this moment.
    ///
    /// # Errors
    /// [`Error::Forked`].
    ///
    /// ```
    /// let space = folioswap::ShmemSpace::builder().limit("64M").build()?;
    /// println!("{}", space.statistics()?);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn statistics(&self) -> Result<ShmemStatistics, Error> {
        if self.0.is_of_this_process() {
            Ok(ShmemStatistics(self.0.space.statistics()))
        } else {
            Err(Error::Forked)
        }
    }

    /// Checks the invariants of the swap space, for tests. No other thread may use the space
    /// meanwhile.
    #[doc(hidden)]
    pub fn validate(&self) -> Result<(), String> {
        self.0.space.validate().map_err(|broken| format!("{broken:?}"))
    }
}

//! Groups within a swap.

use crate::inner::{Inner, Parts, ServedBy};
use crate::overcommit::WhenFull;
use crate::{Error, IntoBytes, LEAST_LIMIT, Swap};
use folioswap_slots::{DeviceId, DeviceMask};
use std::sync::Arc;

/// The settings of a group within a [`Swap`] before it is made. Returned by [`Swap::group`]; the
/// group is a [`Swap`] too.
///
/// ```
/// use folioswap::{Device, Swap};
///
/// let swap = Swap::builder()
///     .limit("64M")
///     .device(Device::zram().priority(1))
///     .device(Device::file("/var/tmp").size("1G").priority(0))
///     .build()?;
/// let cache = swap.group().limit("16M").build()?;                       // may use both devices
/// let archive = swap.group().limit("16M").devices([1]).build()?;        // only the file
/// # drop((cache, archive));
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `build`"]
pub struct GroupBuilder {
    parent: Swap,
    limit: Option<Result<u64, Error>>,
    devices: Option<Vec<usize>>,
    when_full: WhenFull,
    faults: ServedBy,
}

impl GroupBuilder {
    pub(crate) fn new(parent: Swap) -> Self {
        GroupBuilder {
            parent,
            limit: None,
            devices: None,
            when_full: WhenFull::default(),
            faults: ServedBy::Threads,
        }
    }

    /// Sets the group's limit, in bytes, which holds for the groups within it too: at least
    /// [`LEAST_LIMIT`], and otherwise as [`crate::SwapBuilder::limit`]. It may exceed the limit
    /// around the group, or the free part of that limit; the limit that is reached first is kept.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.group().limit("16M").build()?.limit(), 16 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn limit(mut self, limit: impl IntoBytes) -> Self {
        self.limit = Some(limit.into_bytes());
        self
    }

    /// Restricts the group to the devices of these numbers: in the order in which they were given
    /// to [`crate::SwapBuilder::device`], from 0 on (of the built-in devices, compressed RAM is 0
    /// and the file 1). Without this call the group may use all devices of the swap around it.
    ///
    /// A group that may not use compressed RAM still keeps pages there that no other device takes
    /// at the moment; they count towards its limit.
    ///
    /// ```
    /// use folioswap::{Error, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let group = swap.group().limit("16M").devices([1]).build()?;
    /// let mut region = group.region("4M")?;
    /// region.as_mut_slice().fill(1);
    /// let refused = swap.group().limit("16M").devices([0, 2]).build();
    /// assert!(matches!(refused, Err(Error::NoSuchDevice { number: 2, .. })));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn devices(mut self, numbers: impl IntoIterator<Item = usize>) -> Self {
        self.devices = Some(numbers.into_iter().collect());
        self
    }

    /// Sets the reaction when the group's own limit is reached and nothing more of it can be
    /// swapped out: as [`crate::SwapBuilder::when_full`]. Each swap around it has a setting of its
    /// own for its limit.
    ///
    /// ```
    /// use folioswap::{Swap, WhenFull};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let group = swap.group().limit("16M").when_full(WhenFull::Exceed).build()?;
    /// # drop(group);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Makes it possible to have regions of [`crate::FaultMode::Sigbus`] in the group: as
    /// [`crate::SwapBuilder::sigbus`].
    ///
    /// ```
    /// use folioswap::{FaultMode, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let group = swap.group().limit("16M").sigbus().build()?;
    /// let region = group.region_with("1M", FaultMode::Sigbus)?;
    /// # drop(region);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn sigbus(mut self) -> Self {
        self.faults = ServedBy::Both;
        self
    }

    /// Makes the group: an engine of its own with three threads, or six with
    /// [`GroupBuilder::sigbus`], which shares the devices of the swap around it.
    ///
    /// # Errors
    /// Those of [`crate::SwapBuilder::build`]; [`Error::NoSuchDevice`], [`Error::NoDevices`],
    /// [`Error::TooManyGroups`], [`Error::Closed`], [`Error::Forked`].
    ///
    /// ```
    /// use folioswap::{Error, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// assert!(matches!(swap.group().build(), Err(Error::NoLimit)));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn build(self) -> Result<Swap, Error> {
        let limit = self.limit.ok_or(Error::NoLimit)??;
        if limit < LEAST_LIMIT {
            return Err(Error::LimitTooSmall { given: limit, least: LEAST_LIMIT });
        }
        let parent = &self.parent.0;
        parent.check_process()?;
        parent.check_open()?;
        let permitted = match self.devices {
            Some(numbers) => among(&numbers, parent)?,
            None => parent.permitted(),
        };
        let devices = parent.devices_again(permitted)?;
        let Self { when_full, faults, .. } = self;
        let parts = Parts { limit, when_full, faults, gate: parent.gate(), permitted, devices };
        Ok(Swap(Arc::new(Inner::new(Arc::clone(&parent.tree), Some(Arc::clone(parent)), parts)?)))
    }
}

/// Returns the devices of these numbers, all of which must be permitted to `swap`.
fn among(numbers: &[usize], swap: &Inner) -> Result<DeviceMask, Error> {
    let mut permitted = DeviceMask::NONE;
    for &number in numbers {
        let id = u32::try_from(number).ok().and_then(DeviceId::new);
        let known = id.filter(|id| number < swap.device_count() && swap.permitted().contains(*id));
        let id = known.ok_or_else(|| Error::NoSuchDevice { number, devices: swap.device_count() })?;
        permitted = permitted.with(id);
    }
    if permitted.is_empty() { Err(Error::NoDevices) } else { Ok(permitted) }
}

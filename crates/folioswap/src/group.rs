//! Groups within a swap.

use crate::inner::{Inner, Parts, ServedBy};
use crate::overcommit::WhenFull;
use crate::{Error, IntoBytes, LEAST_LIMIT, Swap};
use folioswap_slots::{DeviceId, DeviceMask};
use std::sync::Arc;

/// Says what a group within a [`Swap`] is to be. Made by [`Swap::group`]; what it builds is a [`Swap`] too.
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

    /// What the group may occupy, with all groups within it: as [`crate::SwapBuilder::limit`]. It may be more than the swap around it has left, or
    /// more than that one's limit: whichever is reached first is kept. At least [`LEAST_LIMIT`].
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

    /// The devices that the group may use, by their number: in the order in which they were given to [`crate::SwapBuilder::device`], from 0 on (of
    /// the built-in ones, compressed RAM is 0 and the file 1). Without it, all that the swap around it may use.
    ///
    /// A group that may not use compressed RAM still keeps in it what no other device takes at the moment; that counts towards its limit.
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

    /// What happens when nothing of the group can be swapped out any more and its own limit is reached: as [`crate::SwapBuilder::when_full`]. Of
    /// the limits around it, their own swaps say.
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

    /// Regions of [`crate::FaultMode::Sigbus`] can be made in the group: as [`crate::SwapBuilder::sigbus`].
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

    /// Makes the group: an engine of its own, with three threads, six with [`GroupBuilder::sigbus`]. It shares the devices with the swap around it.
    ///
    /// # Errors
    /// As [`crate::SwapBuilder::build`]; [`Error::NoSuchDevice`], [`Error::NoDevices`], [`Error::TooManyGroups`], [`Error::Closed`],
    /// [`Error::Forked`].
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
        let parts = Parts { limit, when_full: self.when_full, faults: self.faults, permitted, devices };
        Ok(Swap(Arc::new(Inner::new(Arc::clone(&parent.shared), Some(Arc::clone(parent)), parts)?)))
    }
}

/// The devices of these numbers, all of which the swap itself may use.
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

//! Tiers of swap (spec, "Swap tiers"): a tier is the devices of one priority, and a group's tiers
//! are those whose devices take its new pages.
//!
//! A list of tiers is written as their priorities, `10,0`, or as `all`. Pages that are on a device
//! whose tier is taken out of the list stay there, as in the kernel, until they are wanted.

use core::fmt;
use folioswap_slots::DeviceMask;

/// Why a list of tiers is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TiersError {
    /// It is neither `all` nor priorities with commas between them.
    Form,
    /// No device has this priority.
    NoTier(i32),
}

impl fmt::Display for TiersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TiersError::Form => f.write_str("give `all`, or priorities of devices: 10,0"),
            TiersError::NoTier(priority) => write!(f, "no device has priority {priority}"),
        }
    }
}

impl core::error::Error for TiersError {}

/// The priorities of a list; `None` in place of one that is no number.
fn priorities_of(list: &str) -> impl Iterator<Item = Option<i32>> {
    list.split(',').map(|word| word.trim().parse().ok())
}

/// Checks that a list can be one, whatever devices there are.
///
/// # Errors
/// [`TiersError::Form`].
pub fn check(list: &str) -> Result<(), TiersError> {
    let is_one = list.trim() == "all" || priorities_of(list).all(|priority| priority.is_some());
    if is_one { Ok(()) } else { Err(TiersError::Form) }
}

/// The devices in the tiers of a list, if these are the priorities of all devices, by number;
/// `None` stands for a device that is out of use. Never empty, unless there are no devices.
///
/// # Errors
/// [`TiersError`].
pub fn devices_in(
    list: &str,
    priorities: impl Iterator<Item = Option<i32>> + Clone,
) -> Result<DeviceMask, TiersError> {
    check(list)?;
    if list.trim() == "all" {
        return Ok(DeviceMask::ALL);
    }
    priorities_of(list).flatten().try_fold(DeviceMask::NONE, |devices, wanted| {
        let tier = devices_of_priority(wanted, priorities.clone());
        if tier.is_empty() {
            return Err(TiersError::NoTier(wanted));
        }
        Ok(DeviceMask::from_bits(devices.bits() | tier.bits()))
    })
}

/// The devices that are in a tier with any of these; whoever names devices means whole tiers.
pub fn whole_tiers(devices: DeviceMask, priorities: impl Iterator<Item = Option<i32>> + Clone) -> DeviceMask {
    let named = DeviceMask::ALL.iter().zip(priorities.clone()).filter(|&(id, _)| devices.contains(id));
    named.filter_map(|(_, priority)| priority).fold(devices, |whole, priority| {
        DeviceMask::from_bits(whole.bits() | devices_of_priority(priority, priorities.clone()).bits())
    })
}

fn devices_of_priority(wanted: i32, priorities: impl Iterator<Item = Option<i32>>) -> DeviceMask {
    let numbered = DeviceMask::ALL.iter().zip(priorities);
    numbered
        .filter(|&(_, priority)| priority == Some(wanted))
        .fold(DeviceMask::NONE, |tier, (id, _)| tier.with(id))
}

#[cfg(test)]
mod tests;

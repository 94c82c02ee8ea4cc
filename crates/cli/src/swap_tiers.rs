//! `--swap-tiers` of `run`, `mount` and `set`.

use folioswap_policy::tiers::{self, TiersError};
use folioswap_slots::DeviceMask;

/// Reads a list of tiers, as far as that goes without the devices.
///
/// # Errors
/// [`TiersError::Form`].
pub fn parse(text: &str) -> Result<String, TiersError> {
    tiers::check(text).map(|()| text.to_owned())
}

/// Why a list of tiers does not fit the devices.
#[derive(Debug, thiserror::Error)]
#[error("--swap-tiers {list}: {why}; the tiers are {known}")]
pub struct TiersRefusal {
    list: String,
    why: TiersError,
    known: String,
}

/// The devices in the tiers of a list, where these are the priorities of all devices, by
/// number; `None` for one that is out of use.
///
/// # Errors
/// [`TiersRefusal`].
pub fn devices_in(list: &str, priorities: &[Option<i32>]) -> Result<DeviceMask, TiersRefusal> {
    tiers::devices_in(list, priorities.iter().copied()).map_err(|why| {
        let mut known: Vec<i32> = priorities.iter().flatten().copied().collect();
        known.sort_unstable_by(|a, b| b.cmp(a));
        known.dedup();
        let known: Vec<String> = known.iter().map(i32::to_string).collect();
        TiersRefusal { list: list.to_owned(), why, known: known.join(", ") }
    })
}

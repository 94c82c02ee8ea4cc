//! How short memory is: the reasons for which the evictor reclaims, and its findings about them.

use crate::evict::wanted::Wanted;
use crate::kernel::sys;
use folioswap_group::nested::DEPTH_MAX;
use folioswap_policy::reclaim::standstill::Standstill;
use folioswap_policy::reclaim::turns::Turn;

/// The present shortage.
pub(crate) struct Shortage {
    pub(crate) standstill: Standstill,
    /// For the own group and those around it: the charge was beyond the high mark, and has not been
    /// down to the low mark since.
    pub(crate) reclaiming: [bool; DEPTH_MAX],
    /// For the same groups: how far this process is ahead of its share.
    pub(crate) turns: [Turn; DEPTH_MAX],
    /// As `reclaiming`, for the huge pages that are asked for.
    pub(crate) making_headroom: bool,
    /// The time until which no headroom is looked for, because none was found.
    pub(crate) no_headroom_until_ns: u64,
    /// The reason for the batch that is under way.
    pub(crate) reason: Wanted,
    /// Shared pages may be taken too, because nothing else was found.
    pub(crate) desperate: bool,
    /// The last write-back found no device that takes the oldest berth.
    pub(crate) stuck: bool,
    /// Bytes of staging that the system got since it gave a huge page: as much may be taken from it
    /// in return.
    pub(crate) given_back: u64,
    /// The time until which the process counts as empty.
    pub(crate) barren_until_ns: u64,
}

impl Shortage {
    pub(crate) fn new() -> Self {
        Shortage {
            standstill: Standstill::new(sys::now_ns()),
            reclaiming: [false; DEPTH_MAX],
            turns: [Turn::new(); DEPTH_MAX],
            making_headroom: false,
            no_headroom_until_ns: 0,
            reason: Wanted::Now,
            desperate: false,
            stuck: false,
            given_back: 0,
            barren_until_ns: 0,
        }
    }
}

//! The reaction when all devices are full and the limit is reached, so that nothing more can leave.

use crate::mapping::GroupMapping;
use crate::pager::fail;
use crate::size::show;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The reaction when nothing more can be swapped out: every device is full, and the limit is
/// reached.
///
/// ```
/// use folioswap::{Swap, WhenFull};
///
/// let swap = Swap::builder().limit("64M").when_full(WhenFull::Abort).build()?;
/// # drop(swap);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The limit gives way, a quarter at a time, and the program goes on.
    /// [`crate::Statistics::limit`] and [`crate::Statistics::times_exceeded`] show it;
    /// [`crate::Swap::set_limit`] sets the limit back.
    #[default]
    Exceed,
    /// The process is ended by abort(3), with one message. The limit is kept whatever it costs.
    Abort,
}

/// The chosen reaction, and how often it was needed.
pub(crate) struct Overcommit {
    when_full: WhenFull,
    exceeded: AtomicU64,
}

impl Overcommit {
    pub(crate) fn new(when_full: WhenFull) -> Self {
        Overcommit { when_full, exceeded: AtomicU64::new(0) }
    }

    /// Returns how often the limit gave way.
    pub(crate) fn times_exceeded(&self) -> u64 {
        self.exceeded.load(Relaxed)
    }

    /// Reacts to an evictor that has found no page of this group that any device takes.
    pub(crate) fn out_of_memory(&self, memory: &GroupMapping, group: u32) {
        let (limit, charge) = (memory.group().decisions.limit_of(group), memory.group().charge_within(group));
        if charge < limit / 16 * 15 {
            return;
        }
        if self.when_full == WhenFull::Abort {
            fail(&format!("all swap devices are full and the limit of {} is reached", show(limit)));
        }
        self.exceeded.fetch_add(1, Relaxed);
        memory.writer().set_limit_of(group, (charge.max(limit) / 4).saturating_mul(5));
    }
}

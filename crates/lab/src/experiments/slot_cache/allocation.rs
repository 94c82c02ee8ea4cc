//! The allocators that are compared.

use crate::policies::{WithPolicy, Yield};
use folioswap_slots::{
    BeforeClusterScan, Current, NonfullUnlessDiscard, RelaxBy, RotatePerAllocation, SlotCachePerCpu,
};
use serde::Serialize;

/// An allocator that is compared. Before and after the series differ by the series alone; the two
/// others have what came later too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocation {
    /// Linux 6.14: slot cache, devices in turn every 64 slots; all fragment clusters scanned, free
    /// clusters first.
    Before,
    /// Linux 6.15: the same without the slot cache, devices in turn by cluster.
    After,
    /// Linux 6.18: that, with series 1: nonfull clusters first.
    NonfullFirst,
    /// Today's, with free clusters first while they are plentiful.
    Today,
}

impl Allocation {
    /// All of them, before first.
    pub const ALL: [Allocation; 4] =
        [Allocation::Before, Allocation::After, Allocation::NonfullFirst, Allocation::Today];

    /// The name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Allocation::Before => "before (6.14)",
            Allocation::After => "after (6.15)",
            Allocation::NonfullFirst => "nonfull first (6.18)",
            Allocation::Today => "today",
        }
    }

    pub(super) fn apply<T: WithPolicy>(self, task: T) -> T::Output {
        match self {
            Allocation::Before => {
                task.run::<RelaxBy<Yield, SlotCachePerCpu<RotatePerAllocation<BeforeClusterScan>>>>()
            }
            Allocation::After => task.run::<RelaxBy<Yield, BeforeClusterScan>>(),
            Allocation::NonfullFirst => task.run::<RelaxBy<Yield, NonfullUnlessDiscard>>(),
            Allocation::Today => task.run::<RelaxBy<Yield, Current>>(),
        }
    }
}

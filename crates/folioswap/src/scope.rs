//! The memory that a limit counts.

use folioswap_group::decisions::Scope;

/// The memory that a swap's limit counts; `folioswap run` calls it `--memory-scope`.
///
/// ```
/// use folioswap::{MemoryScope, Swap};
///
/// let swap = Swap::builder().limit("64M").scope(MemoryScope::Resident).build()?;
/// # drop(swap);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryScope {
    /// Resident memory, the compressed store, devices of plain RAM, and the tables. The limit
    /// bounds all memory that the swap takes.
    #[default]
    Total,
    /// Resident memory alone. It serves comparisons with kernel zram, whose memory is charged to no
    /// cgroup. The store is not bounded, so only pages that do not compress go to the devices
    /// behind it.
    Resident,
}

impl MemoryScope {
    pub(crate) fn of_group(self) -> Scope {
        match self {
            MemoryScope::Total => Scope::Total,
            MemoryScope::Resident => Scope::Resident,
        }
    }
}

//! What a limit counts.

use folioswap_group::segment::Scope;

/// What a swap's limit counts; `folioswap run` calls it `--memory-scope`.
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
    /// Resident memory, the compressed store, devices of plain RAM, and the tables: the limit is all that the swap takes.
    #[default]
    Total,
    /// Resident memory alone, for comparisons with kernel zram, whose memory no group is charged for. The store takes what it takes besides, without a
    /// bound: nothing goes on from it to the devices behind it but what does not compress.
    Resident,
}

impl MemoryScope {
    pub(crate) fn of_segment(self) -> Scope {
        match self {
            MemoryScope::Total => Scope::Total,
            MemoryScope::Resident => Scope::Resident,
        }
    }
}

//! How much of the limit the compressed store may take before the oldest of it goes on to a slower device.
//!
//! What it takes is missing to the program, which then faults more often; what it gives is that a page need not be read from the
//! file. It gives its memory back as many times over as the data compress. So its share grows with the ratio: data that hardly
//! compress keep the least, by which they are judged on.

use folioswap_core::page_table::PAGE;
use folioswap_devices::MmStat;

/// Stored pages from which on their ratio says something.
const PAGES_TO_JUDGE: u64 = 256;
/// Thousandths of the limit. With the most, and the holes that packing leaves (an eighth), the store is just not full
/// (half of the limit).
const LEAST: u64 = 64;
const MOST: u64 = 440;
/// The least up to this ratio (in thousandths), and the whole limit for every so many thousandths above it.
const RATIO_LEAST: u64 = 1250;
const RATIO_RANGE: u64 = 4000;

/// The share, in thousandths of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreShare(u64);

impl StoreShare {
    /// For a store with these figures.
    pub(crate) fn of(stat: &MmStat) -> Self {
        if stat.objects < PAGES_TO_JUDGE {
            return StoreShare(MOST);
        }
        let share = ratio(stat).saturating_sub(RATIO_LEAST) * 1000 / RATIO_RANGE;
        StoreShare(share.clamp(LEAST, MOST))
    }

    /// Compressed bytes, of a limit of so many bytes.
    pub(crate) fn bytes(self, limit: u64) -> u64 {
        (u128::from(limit) * u128::from(self.0) / 1000) as u64
    }

    /// Is it so large that what is touched on a slower device should go into the store next?
    pub(crate) fn is_worth_refilling(self) -> bool {
        self.0 >= 2 * LEAST
    }
}

/// Uncompressed by occupied bytes, in thousandths, a packed store occupying an eighth more than what is in it. What is one repeated
/// word takes no room and does not count.
fn ratio(stat: &MmStat) -> u64 {
    let occupied = u128::from(stat.compr_data_size) * 9 / 8;
    (u128::from(stat.objects) * PAGE as u128 * 1000 / occupied.max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pages: u64, ratio_percent: u64) -> MmStat {
        let compr_data_size = pages * PAGE as u64 * 100 / ratio_percent * 8 / 9;
        MmStat { objects: pages, compr_data_size, ..MmStat::default() }
    }

    #[test]
    fn it_grows_with_the_ratio() {
        let share = |ratio| StoreShare::of(&stat(10_000, ratio)).0;
        assert_eq!([100, 150, 400].map(share), [LEAST, LEAST, MOST]);
        assert!(share(200) > LEAST && share(200) < share(250) && share(250) < MOST);
        assert!(!StoreShare::of(&stat(10_000, 160)).is_worth_refilling());
        assert!(StoreShare::of(&stat(10_000, 200)).is_worth_refilling());
    }

    #[test]
    fn few_pages_say_nothing() {
        assert_eq!(StoreShare::of(&MmStat::default()), StoreShare(MOST));
        assert_eq!(StoreShare::of(&stat(PAGES_TO_JUDGE - 1, 100)), StoreShare(MOST));
    }

    #[test]
    fn bytes_of_any_limit() {
        assert_eq!(StoreShare(500).bytes(1 << 30), 1 << 29);
        assert_eq!(StoreShare(500).bytes(u64::MAX), u64::MAX / 2);
    }
}

//! The figures of a space.

use crate::size::show;
use folioswap_group::counters::SIZE_NAMES;
use folioswap_shmem::Statistics;
use std::fmt;

/// Figures of a [`crate::ShmemSpace`] at one moment. Counters have the kernel's names (`pswpin`,
/// `pswpout`, `pgmajfault`, and `64kB/swpout` and so on for each folio size), and count since the
/// space was made. Sizes are in bytes.
///
/// ```
/// use folioswap::{Device, ShmemSpace};
///
/// let space = ShmemSpace::builder().limit("8M").device(Device::zram()).build()?;
/// let object = space.object()?;
/// object.write(0, &vec![1; 16 << 20])?;
/// let statistics = space.statistics()?;
/// assert_eq!(statistics.content_bytes(), 16 << 20);
/// assert!(statistics.counter("pswpout").is_some_and(|pages| pages > 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ShmemStatistics(pub(super) Statistics);

impl ShmemStatistics {
    /// Returns the limit.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// assert_eq!(space.statistics()?.limit(), 8 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Returns the memory in use: resident folios, the compressed store, tables, and free memory
    /// that is kept for new folios.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// assert!(space.statistics()?.charge() < 8 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn charge(&self) -> u64 {
        self.0.used + self.0.idle
    }

    /// Returns the memory of resident folios.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// assert_eq!(space.statistics()?.resident_bytes(), 0);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn resident_bytes(&self) -> u64 {
        self.0.folios
    }

    /// Returns the content of all objects, resident or not, in whole pages.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, b"a byte takes a page")?;
    /// assert_eq!(space.statistics()?.content_bytes(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn content_bytes(&self) -> u64 {
        self.0.content
    }

    /// Returns a counter or a state by its name; `None`: no figure has that name.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// assert_eq!(space.statistics()?.counter("2048kB/swpout"), Some(0));
    /// assert_eq!(space.statistics()?.counter("nonsense"), None);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.all().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns all counters, then all states, with their names.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// assert!(space.statistics()?.all().any(|(name, _)| name == "pgmajfault"));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn all(&self) -> impl Iterator<Item = (String, u64)> {
        let Statistics { counts, .. } = &self.0;
        let counters = [
            ("pswpin", counts.pswpin),
            ("pswpout", counts.pswpout),
            ("pgmajfault", counts.pgmajfault),
            ("swap_ra", counts.swap_ra),
            ("swap_ra_hit", counts.swap_ra_hit),
            ("demoted", counts.demoted),
            ("pages_poisoned", counts.poisoned),
        ];
        let sizes = [
            ("swpout", counts.swpout),
            ("swpout_clean", counts.clean),
            ("swpout_fallback", counts.swpout_fallback),
            ("swpin", counts.swpin),
            ("swpin_fallback", counts.swpin_fallback),
        ];
        let states = [
            ("orig_data_size", self.0.stored),
            ("mem_used_total", self.0.store),
            ("file_bytes", self.0.on_file),
            ("metadata", self.0.metadata),
        ];
        let of_size = move |(name, values): (&'static str, [u64; SIZE_NAMES.len()])| {
            SIZE_NAMES.iter().zip(values).map(move |(size, value)| (format!("{size}/{name}"), value))
        };
        let named = |(name, value): (&str, u64)| (name.to_owned(), value);
        let counters = counters.into_iter().map(named).chain(sizes.into_iter().flat_map(of_size));
        counters.chain(states.into_iter().map(named))
    }
}

/// One line of text.
impl fmt::Display for ShmemStatistics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} of {} occupied by {} of content: {} resident, {} in compressed RAM as {}, {} on file; pages: {} out, {} in",
            show(self.charge()),
            show(self.0.limit),
            show(self.0.content),
            show(self.0.folios),
            show(self.0.stored),
            show(self.0.store),
            show(self.0.on_file),
            self.0.counts.pswpout,
            self.0.counts.pswpin,
        )
    }
}

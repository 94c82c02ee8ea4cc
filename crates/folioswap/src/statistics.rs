//! The figures of a swap.

use crate::inner::Inner;
use crate::size::{show, show_duration};
use folioswap_group::counters::{Counter, Gauge, SIZE_NAMES, SizeCounter};
use folioswap_group::sums::saturating_sum;
use folioswap_pager::engine::Engine;
use folioswap_pager::kernel::latency::{BUCKETS, bucket_end_ns};
use std::fmt;
use std::time::Duration;

/// The counter of the library's own watch.
const THRASHING_MS: &str = "thrashing_ms";

/// Figures of a swap at one moment. Counters have the kernel's names (`pswpin`, `pswpout`,
/// `pgmajfault`, ...), and those of each folio size the names below
/// `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/stats` (`64kB/swpout`, ...). States, as
/// opposed to counters, are some milliseconds old.
///
/// `thrashing_ms` counts the milliseconds in which threads waited half of the time or more for
/// pages that had left. If it grows, the program works with more than its limit holds.
///
/// ```
/// let swap = folioswap::Swap::builder().limit("16M").build()?;
/// let mut region = swap.region("32M")?;
/// region.as_mut_slice().fill(1);
/// let statistics = swap.statistics();
/// assert!(statistics.counter("pswpout").is_some_and(|pages| pages > 0));
/// assert_eq!(statistics.counter("nonsense"), None);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Statistics {
    limit: u64,
    charge: u64,
    resident: u64,
    exceeded: u64,
    counters: Vec<(String, u64)>,
    gauges: Vec<(&'static str, u64)>,
    latency: [u64; BUCKETS],
}

impl Statistics {
    pub(crate) fn of(inner: &Inner) -> Self {
        let figures: Vec<_> = inner.engines().map(Engine::published).collect();
        let counter = |counter| saturating_sum(figures.iter().map(|figures| figures.counter(counter)));
        let size =
            |counter, order| saturating_sum(figures.iter().map(|figures| figures.size(counter, order)));
        let gauge = |gauge| saturating_sum(figures.iter().map(|figures| figures.gauge(gauge)));
        let mut counters: Vec<(String, u64)> =
            Counter::ALL.iter().map(|&of| (of.name().to_owned(), counter(of))).collect();
        for &of in SizeCounter::ALL {
            let sizes = SIZE_NAMES.iter().enumerate();
            counters.extend(sizes.map(|(order, name)| (format!("{name}/{}", of.name()), size(of, order))));
        }
        let mut latency = [0; BUCKETS];
        for engine in inner.engines() {
            for (sum, count) in latency.iter_mut().zip(engine.latency().counts()) {
                *sum += count;
            }
        }
        counters.push((THRASHING_MS.to_owned(), inner.thrashing.total_ms()));
        Statistics {
            limit: inner.limit_now(),
            charge: inner.tree.memory.group().charge_within(inner.group()),
            resident: inner.engines().map(Engine::managed_bytes).sum(),
            exceeded: inner.times_exceeded(),
            counters,
            gauges: Gauge::ALL.iter().map(|&of| (of.name(), gauge(of))).collect(),
            latency,
        }
    }

    /// Returns the limit, in bytes.
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.statistics().limit(), 64 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the memory that counts towards the limit, in bytes: resident memory of the regions,
    /// the store, the tables, those of all groups within the swap, and bytes that are set aside.
    /// (Every other figure is that of the swap without the groups within it.)
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert!(swap.statistics().charge() < 64 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn charge(&self) -> u64 {
        self.charge
    }

    /// Returns the resident memory of the regions, in bytes.
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.statistics().resident_bytes(), 0);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn resident_bytes(&self) -> u64 {
        self.resident
    }

    /// Returns how often the limit gave way because all devices were full
    /// ([`crate::WhenFull::Exceed`]).
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.statistics().times_exceeded(), 0);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn times_exceeded(&self) -> u64 {
        self.exceeded
    }

    /// Returns a counter or a state by its name; `None`: no figure has that name.
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.statistics().counter("64kB/swpout"), Some(0));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.all().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns all counters, then all states, with their names.
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert!(swap.statistics().all().any(|(name, _)| name == "pgmajfault"));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        let counters = self.counters.iter().map(|(name, value)| (name.as_str(), *value));
        counters.chain(self.gauges.iter().copied())
    }

    /// Returns the number of faults served, which [`Statistics::latency`] counts.
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region("1M")?;
    /// region.as_mut_slice().fill(1);
    /// assert!(swap.statistics().faults() > 0);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn faults(&self) -> u64 {
        self.latency.iter().sum()
    }

    /// Returns the longest duration of this part of the faults (0.5: half of them), from when the
    /// engine learned of a fault until it was served. The result is up to an eighth too long.
    /// `None`: there was no fault, or `part` is not in 0..=1.
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region("1M")?;
    /// region.as_mut_slice().fill(1);
    /// println!("p99 {:?}", swap.statistics().latency(0.99));
    /// assert!(swap.statistics().latency(0.5).is_some());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn latency(&self, part: f64) -> Option<Duration> {
        let all = self.faults();
        if all == 0 || !(0.0..=1.0).contains(&part) {
            return None;
        }
        let rank = ((all as f64 * part).ceil() as u64).clamp(1, all);
        let mut before = 0;
        let bucket = self.latency.iter().position(|&count| {
            before += count;
            before >= rank
        });
        bucket.map(|bucket| Duration::from_nanos(bucket_end_ns(bucket)))
    }

    /// Returns the histogram behind [`Statistics::latency`]: for each step its longest duration,
    /// and the number of faults that took longer than the step before and no longer than this one.
    /// Steps without faults are left out.
    ///
    /// ```
    /// # let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// # let mut region = swap.region(1)?;
    /// # region.as_mut_slice()[0] = 1;
    /// for (at_most, faults) in swap.statistics().latency_histogram() {
    ///     println!("{at_most:?}: {faults}");
    /// }
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn latency_histogram(&self) -> impl Iterator<Item = (Duration, u64)> {
        let steps = self.latency.iter().enumerate().filter(|(_, count)| **count > 0);
        steps.map(|(bucket, &count)| (Duration::from_nanos(bucket_end_ns(bucket)), count))
    }
}

/// A few lines of text.
impl fmt::Display for Statistics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |name| self.counter(name).unwrap_or(0);
        writeln!(
            formatter,
            "{} of {} occupied: {} resident, {} swapped out ({} in compressed RAM as {}, {} in files)",
            show(self.charge),
            show(self.limit),
            show(self.resident),
            show(figure("swapped")),
            show(figure("orig_data_size")),
            show(figure("mem_used_total")),
            show(figure("file_bytes")),
        )?;
        write!(
            formatter,
            "{} faults, {} of them major; pages: {} out, {} in",
            self.faults(),
            figure("pgmajfault"),
            figure("pswpout"),
            figure("pswpin"),
        )?;
        if let (Some(median), Some(high)) = (self.latency(0.5), self.latency(0.99)) {
            write!(formatter, "; p50 {}, p99 {}", show_duration(median), show_duration(high))?;
        }
        match figure(THRASHING_MS) {
            0 => Ok(()),
            ms => {
                let long = show_duration(Duration::from_millis(ms));
                write!(formatter, "; it thrashed for {long}: raise the limit")
            }
        }
    }
}

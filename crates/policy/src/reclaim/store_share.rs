//! The share of a process's memory that its compressed store may take, where a slower device is
//! below it (kernel: zswap's `max_pool_percent`, which is fixed).
//!
//! A larger store keeps more pages from the slow device. But the limit counts the store, so the
//! program has less memory for pages used as they are, and more of those come and go. The *refault
//! distances* tell which of both costs less ([`workingset`](super::workingset)): a page that comes
//! back after `d` others have left would have stayed with `d` pages more of memory, would have come
//! from a store that holds `d` pages, and comes from below otherwise. So the cost that any other
//! share would have had lately can be counted from the same distances:
//!
//! ```text
//!   refaults          with a share smaller by x pages of memory, of which the store holds `reach`:
//!      |##                                 d <= x               no refault at all
//!      |######                             d <= x + reach       from the store
//!      |############  ####                 beyond               from below
//!      +-----------------------> distance d
//! ```
//!
//! For a larger share, the pages that would have left the program are unknown, because they are no
//! refaults; their number is taken to be that of the refaults of the same distance beyond. The
//! share is judged when enough pages came back, a step at a time, and changes only for a quarter
//! less cost, because all distances are others afterwards.

use super::workingset::Ages;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The shares that the store may take, in percent of the memory of its process, in compressed
/// bytes. The first holds unless the refaults say otherwise; with the last, pages go straight to
/// the device below. With the holes that packing leaves (an eighth) the first is just below half.
pub const SHARES: [u64; 6] = [44, 33, 22, 11, 4, 0];

/// Distances are told apart by this part of the process's memory, up to four times that memory.
const PART: u64 = 64;
const BUCKETS: usize = 4 * PART as usize + 1;
/// A judgement takes this many refaults, and this part of the pages of the process's memory.
const REFAULTS_MIN: u64 = 1024;
const REFAULTS_PART: u64 = 32;
/// A store that takes less than this part of the memory counts as empty.
const EMPTY_PART: u64 = 64;
/// A share is left for another that costs less than this part of it, in percent.
const BETTER_PERCENT: u128 = 75;

/// How many pages came back at which distance, since the last judgement. Any thread may add;
/// advisory. All-zero: none.
#[derive(Debug)]
pub struct Distances {
    /// The width of a bucket in pages; 0: not known yet, nothing is counted.
    width: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Distances {
    fn default() -> Self {
        Distances { width: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl Distances {
    /// Whether distances are counted: from the first judgement on.
    pub fn are_counted(&self) -> bool {
        self.width.load(Relaxed) != 0
    }

    /// Adds a page that came back at this distance. Cost: a load, a division, an atomic addition.
    pub fn add(&self, distance: u64) {
        if let Some(bucket) = distance.checked_div(self.width.load(Relaxed)) {
            self.buckets[(bucket as usize).min(BUCKETS - 1)].fetch_add(1, Relaxed);
        }
    }

    /// Returns how many pages are counted.
    fn total(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Clears the counts and begins to count for a memory of this many pages, by an age that goes
    /// on by `passed.age` while `passed.evictions` pages leave. The age counts activations too, but
    /// with that much more memory only as many pages would have stayed as were evicted.
    fn clear(&self, memory: u64, passed: Ages) {
        let pages = (memory / PART).max(1);
        let width = u128::from(pages) * u128::from(passed.age) / u128::from(passed.evictions.max(1));
        self.width.store((width as u64).max(pages), Relaxed);
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
    }
}

/// The costs of the pages that came back, by their source. Any thread may add; advisory. All-zero:
/// nothing is known.
#[derive(Debug, Default)]
pub struct Costs {
    store: Cost,
    below: Cost,
}

/// The source of pages that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The compressed store.
    Store,
    /// A slower device.
    Below,
}

#[derive(Debug, Default)]
struct Cost {
    nanoseconds: AtomicU64,
    pages: AtomicU64,
}

impl Cost {
    /// Returns nanoseconds a page; close to `expected` as long as few pages have come.
    fn of_page(&self, expected: u64) -> u64 {
        const EXPECTED_PAGES: u64 = 64;
        let (nanoseconds, pages) = (self.nanoseconds.load(Relaxed), self.pages.load(Relaxed));
        (nanoseconds + expected * EXPECTED_PAGES) / (pages + EXPECTED_PAGES)
    }

    /// Halves the sums, so that old costs count less.
    fn fade(&self) {
        self.nanoseconds.store(self.nanoseconds.load(Relaxed) / 2, Relaxed);
        self.pages.store(self.pages.load(Relaxed) / 2, Relaxed);
    }
}

impl Costs {
    /// The cost of a page that comes from the store, or from below, until it is known.
    const EXPECTED_NS: (u64, u64) = (15_000, 100_000);
    /// The further cost of a page: to be compressed when it leaves; to be compressed, expanded
    /// again and written.
    const LEAVING_NS: (u64, u64) = (5_000, 10_000);
    /// Of the latter, what is spared where pages do not go by way of the store.
    const BY_WAY_OF_STORE_NS: u64 = 7_000;

    /// Adds a fault that has brought this many pages in this time. Cost: two atomic additions.
    pub fn add(&self, source: Source, nanoseconds: u64, pages: u64) {
        let cost = match source {
            Source::Store => &self.store,
            Source::Below => &self.below,
        };
        cost.nanoseconds.fetch_add(nanoseconds, Relaxed);
        cost.pages.fetch_add(pages, Relaxed);
    }

    fn of_pages(&self) -> (u64, u64) {
        (
            self.store.of_page(Self::EXPECTED_NS.0) + Self::LEAVING_NS.0,
            self.below.of_page(Self::EXPECTED_NS.1) + Self::LEAVING_NS.1,
        )
    }
}

/// The size of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The process's memory, the store included, in pages.
    pub memory: u64,
    /// Pages that are stored.
    pub stored: u64,
    /// Pages of memory that the stored pages take, compressed.
    pub taken: u64,
    /// Pages of memory that the store has, with its holes.
    pub used: u64,
}

/// The share of the store. Default: the most that it may take. A fork may lose it without harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreShare {
    step: usize,
    /// The ages at the last judgement.
    then: Ages,
}

impl StoreShare {
    /// Returns the share that the store may take, in percent of the process's memory.
    pub fn percent(self) -> u64 {
        SHARES[self.step]
    }

    /// The share next to this part of the memory, in percent: what others of the group have found
    /// best.
    pub fn near(percent: u64) -> Self {
        let step = (0..SHARES.len()).min_by_key(|&step| SHARES[step].abs_diff(percent)).unwrap_or(0);
        StoreShare { step, then: Ages::default() }
    }

    /// Whether there is no share: pages do not go by way of the store.
    pub fn is_none(self) -> bool {
        self.percent() == 0
    }

    /// Whether the share is the most that it may be. Then only the group's share counts.
    pub fn is_most(self) -> bool {
        self.step == 0
    }

    /// Goes a step towards the share that would have cost least, if enough pages came back since
    /// the last time and the difference is large enough. Cost: two passes over the distances.
    pub fn judge(&mut self, distances: &Distances, costs: &Costs, store: Store, now: Ages) {
        if !distances.are_counted() {
            distances.clear(store.memory, Ages { age: 1, evictions: 1 });
        }
        if distances.total() < REFAULTS_MIN.max(store.memory / REFAULTS_PART) {
            return;
        }
        let all = self.costs(distances, costs.of_pages(), store);
        let least = (0..SHARES.len()).min_by_key(|&step| all[step]).unwrap_or(self.step);
        if all[least] * 100 < all[self.step] * BETTER_PERCENT {
            self.step = if least > self.step { self.step + 1 } else { self.step - 1 };
        }
        let passed = Ages {
            age: now.age.wrapping_sub(self.then.age),
            evictions: now.evictions.wrapping_sub(self.then.evictions),
        };
        distances.clear(store.memory, passed);
        self.then = now;
        costs.store.fade();
        costs.below.fade();
    }

    /// Returns the cost that each share would have had, in nanoseconds.
    fn costs(
        self,
        distances: &Distances,
        (store_ns, below_ns): (u64, u64),
        store: Store,
    ) -> [u128; SHARES.len()] {
        let width = (store.memory / PART).max(1);
        // What little is stored says nothing of how much a page of memory holds, and its holes are
        // no measure.
        let is_empty = store.taken == 0 || store.taken < store.memory / EMPTY_PART;
        let part =
            |of: u64, part: u64, whole: u64| (u128::from(of) * u128::from(part) / u128::from(whole)) as u64;
        // The memory that a share takes is more than the compressed bytes, by the store's holes.
        let taken_by = |step: usize| {
            let compressed = store.memory * SHARES[step] / 100;
            if is_empty { compressed } else { part(compressed, store.used.max(store.taken), store.taken) }
        };
        // The pages that a page of the store holds: three if the store is empty.
        let held_by = |pages: u64| {
            if is_empty { 3 * pages } else { part(pages, store.stored, store.used.max(store.taken)) }
        };
        core::array::from_fn(|step| {
            let (now, then) = (taken_by(self.step), taken_by(step));
            // Memory that the program would have more than now, or less.
            let (more, less) = (now.saturating_sub(then), then.saturating_sub(now));
            let reach = (more + held_by(then)).saturating_sub(less);
            let below_ns = if then == 0 { below_ns - Costs::BY_WAY_OF_STORE_NS } else { below_ns };
            let buckets = distances.buckets.iter().enumerate();
            buckets.fold(0, |cost, (bucket, count)| {
                let (distance, count) = (bucket as u64 * width + width / 2, u128::from(count.load(Relaxed)));
                let of_refault = match distance {
                    distance if distance <= more => 0,
                    distance if distance <= reach => store_ns,
                    _ => below_ns,
                };
                let of_leaving = if distance <= less { store_ns } else { 0 };
                cost + count * u128::from(of_refault + of_leaving)
            })
        })
    }
}

#[cfg(test)]
mod tests;

//! The parameters of a build under a memory limit.

use serde::{Deserialize, Serialize};

/// Pages in a MiB.
const MIB: u64 = 256;

/// Part of the 64 kB folios that the kernel refuses while the group is at its limit, measured on
/// Linux 6.18 with `defrag=madvise`.
const REFUSED_64K: f64 = 0.28;
/// The same part of 2 MB folios.
const REFUSED_2M: f64 = 0.69;

/// A build: many short tasks within one memory group, on tmpfs. Each number has its reason; none
/// was chosen for its result.
///
/// `folioswap lab fit` derives the parameters that a trace shows ([`fit`](crate::fit)); `folioswap
/// lab generate --parameters` takes them as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildParameters {
    /// Logical CPUs. The machine of the published figures had 96 (48 cores with two threads each).
    pub cpus: u32,
    /// Tasks at a time, each on a logical CPU of its own: `make -j96`.
    pub jobs: u32,
    /// Number of tasks: a defconfig build of the kernel compiles about 2800 files.
    pub tasks: u32,
    /// Pages that may be resident: 2 GiB, as published. (The published limit also held page cache
    /// and page tables, which are not modelled.)
    pub limit_pages: u64,
    /// Median of the anonymous memory that a task grows to, in pages. 60 MiB: a C compiler needs 40
    /// to 150 MiB for a file of the kernel.
    pub task_pages_median: f64,
    /// Standard deviation of the logarithm of a task's memory: 0.5 puts 95 % of the tasks between
    /// 22 and 160 MiB.
    pub task_pages_sigma: f64,
    /// Relative number of folios that are faulted in, for each order 0..=9.
    pub order_weights: [f64; 10],
    /// How much the tasks' parts of order 0 differ: the standard deviation of the logarithm of the
    /// odds that a folio is of order 0. 0.56: of the pages of 12 compilers that swapped under `make
    /// -j4`, 11 to 41 % were of order 0, with a weighted mean of 23 % (`bench/record_traces.sh`,
    /// `folioswap lab fit`).
    pub order0_odds_sigma: f64,
    /// Steps of the working phase, which follows a task's growth, per folio of the growing phase.
    /// 1: parsing and code generation take about equally long.
    pub work_steps_per_folio: f64,
    /// Accesses to a random part of the task's memory per step, in both phases. 0.05: at every
    /// twentieth step something is looked up that was left alone for long. (Accesses to memory in
    /// constant use are not modelled: such folios are the newest.)
    pub cold_touches_per_step: f64,
    /// Pages of one such access. 8: 32 KiB, a function's worth of a compiler's data.
    pub touch_run_pages: u32,
    /// Part of the accesses that write. 0.5: there is no reason to prefer either.
    pub write_share: f64,
    /// Pages of the source tree, on tmpfs in order 0, present from the start: 1.4 GiB, a kernel's
    /// source without its history.
    pub source_pages: u64,
    /// Runs of [`touch_run_pages`](Self::touch_run_pages) pages of the source tree that a task
    /// reads when it begins. 40: the file itself and the headers that are not in constant use.
    pub source_reads: u32,
    /// Pages of tmpfs that a task leaves behind. 64: 256 KiB of object file.
    pub object_pages: u32,
    /// How often a folio of order 0..=9 comes back from a synchronous device as the single page
    /// that was touched, because memory for the whole folio is refused while the group is at its
    /// limit. Measured on Linux 6.18 with `defrag=madvise`: 28 % at 64 kB, 69 % at 2 MB; a straight
    /// line over the orders between and below.
    pub swapin_refused: [f64; 10],
    /// Pages of a readahead on a device that is not synchronous. 8: the kernel's `page-cluster` 3.
    pub readahead_pages: u32,
}

/// The folio sizes that the build uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Order 0 and 64 kB.
    Only64k,
    /// Order 0 and 16 kB to 2 MB.
    All,
}

impl Sizes {
    /// The name in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Sizes::Only64k => "64 kB only",
            Sizes::All => "all sizes",
        }
    }

    /// Relative number of folios per order.
    ///
    /// 15 % of the anonymous pages lie at the ends of mappings, where no larger folio fits: order
    /// 0. With 64 kB only, 28 % of the others are of order 0 too, because the larger folio was
    /// refused (see [`swapin_refused`](BuildParameters::swapin_refused)); with all sizes a smaller
    /// one is found.
    ///
    /// With all sizes, orders 5, 6, 7 and 9 are asked for as often as was published (swpout +
    /// fallback together, which is the workload, not the result): 505442, 66092, 14189 and 1590.
    /// The rest of the published run's 1.81 million 64 kB folios is shared by 16, 32 and 64 kB in
    /// equal parts of pages. 1 MB was not published, so it has none.
    pub fn order_weights(self) -> [f64; 10] {
        let mut weights = [0.0; 10];
        let large_pages = 1_810_859.0 * 16.0;
        let large_share = match self {
            Sizes::Only64k => 0.85 * (1.0 - REFUSED_64K),
            Sizes::All => 0.85,
        };
        weights[0] = large_pages * (1.0 - large_share) / large_share;
        match self {
            Sizes::Only64k => weights[4] = large_pages / 16.0,
            Sizes::All => {
                let published = [(5, 505_442.0), (6, 66_092.0), (7, 14_189.0), (9, 1590.0)];
                let mut rest = large_pages;
                for (order, folios) in published {
                    weights[order] = folios;
                    rest -= folios * f64::from(1 << order);
                }
                for order in [2, 3, 4] {
                    weights[order] = rest / 3.0 / f64::from(1 << order);
                }
            }
        }
        weights
    }
}

/// A part of the machine and of the build: everything that is counted is divided, but a task stays
/// as large as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scale(pub u32);

impl std::fmt::Display for Scale {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 1 { formatter.write_str("full size") } else { write!(formatter, "1/{}", self.0) }
    }
}

/// Parameters that describe no build.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadParameters(pub &'static str);

impl BuildParameters {
    /// The published build.
    pub fn published(sizes: Sizes) -> BuildParameters {
        BuildParameters {
            cpus: 96,
            jobs: 96,
            tasks: 2800,
            limit_pages: 2048 * MIB,
            task_pages_median: 60.0 * MIB as f64,
            task_pages_sigma: 0.5,
            order_weights: sizes.order_weights(),
            order0_odds_sigma: 0.56,
            work_steps_per_folio: 1.0,
            cold_touches_per_step: 0.05,
            touch_run_pages: 8,
            write_share: 0.5,
            source_pages: 1434 * MIB,
            source_reads: 40,
            object_pages: 64,
            swapin_refused: std::array::from_fn(|order| {
                if order == 0 {
                    0.0
                } else {
                    (REFUSED_64K + (REFUSED_2M - REFUSED_64K) / 5.0 * (order as f64 - 4.0)).max(0.0)
                }
            }),
            readahead_pages: 8,
        }
    }

    /// The part `scale` of the build. Logical CPUs are divided too, so that the clusters per CPU
    /// stay as they are.
    pub fn scaled(&self, scale: Scale) -> BuildParameters {
        let by = scale.0.max(1);
        BuildParameters {
            cpus: (self.cpus / by).max(1),
            jobs: (self.jobs / by).max(1),
            tasks: (self.tasks / by).max(1),
            limit_pages: (self.limit_pages / u64::from(by)).max(1024),
            source_pages: self.source_pages / u64::from(by),
            ..self.clone()
        }
    }

    /// An upper bound of the pages that the build has at a time.
    pub fn pages_max(&self) -> u64 {
        let task = self.task_pages_median * super::workload::TASK_PAGES_MAX_OF_MEDIAN + 1024.0;
        self.source_pages
            + u64::from(self.tasks) * u64::from(self.object_pages)
            + (f64::from(self.jobs) * task) as u64
            + 1024
    }

    /// Steps of a task of median size.
    pub(super) fn median_steps(&self) -> u64 {
        let (folios, pages) =
            self.order_weights.iter().enumerate().fold((0.0, 0.0), |(folios, pages), (order, weight)| {
                (folios + weight, pages + weight * f64::from(1 << order))
            });
        (self.task_pages_median * folios / pages * (1.0 + self.work_steps_per_folio)) as u64
    }

    /// Checks every parameter's range.
    ///
    /// # Errors
    /// [`BadParameters`], with the parameter that is wrong.
    pub fn check(&self) -> Result<(), BadParameters> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let not_negative = |value: &f64| value.is_finite() && *value >= 0.0;
        let checks = [
            (self.cpus >= 1 && self.cpus <= folioswap_trace::CPUS_MAX, "cpus must be 1 to 4096"),
            (self.jobs >= 1 && self.jobs <= 65536, "jobs must be 1 to 65536"),
            (self.tasks >= 1, "tasks must be at least 1"),
            (self.limit_pages >= 1024 && self.limit_pages <= 1 << 31, "limit_pages must be 1024 to 2^31"),
            (
                positive(self.task_pages_median) && self.task_pages_median <= 1e7,
                "task_pages_median must be above 0 and at most 10 million",
            ),
            (
                not_negative(&self.task_pages_sigma) && self.task_pages_sigma <= 3.0,
                "task_pages_sigma must be 0 to 3",
            ),
            (
                self.order_weights.iter().all(not_negative) && positive(self.order_weights.iter().sum()),
                "order_weights must not be negative, nor all 0",
            ),
            (
                not_negative(&self.order0_odds_sigma) && self.order0_odds_sigma <= 3.0,
                "order0_odds_sigma must be 0 to 3",
            ),
            (
                not_negative(&self.work_steps_per_folio) && self.work_steps_per_folio <= 1e3,
                "work_steps_per_folio must be 0 to 1000",
            ),
            (
                not_negative(&self.cold_touches_per_step) && self.cold_touches_per_step <= 1e3,
                "cold_touches_per_step must be 0 to 1000",
            ),
            ((1..=512).contains(&self.touch_run_pages), "touch_run_pages must be 1 to 512"),
            ((0.0..=1.0).contains(&self.write_share), "write_share must be 0 to 1"),
            (
                self.swapin_refused.iter().all(|share| (0.0..=1.0).contains(share)),
                "swapin_refused must be 0 to 1 for each order",
            ),
            (self.source_pages <= 1 << 31, "source_pages must be at most 2^31"),
            ((1..=64).contains(&self.readahead_pages), "readahead_pages must be 1 to 64"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            Some((_, problem)) => Err(BadParameters(problem)),
            None => Ok(()),
        }
    }
}

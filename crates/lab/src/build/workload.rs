//! The tasks: they grow, work in their memory, leave an object file, and free everything at once.

use super::memory_group::{Access, Extent, GroupError, MemoryGroup, MemoryType};
use super::parameters::{BadParameters, BuildParameters};
use super::recorder::Recorder;
use super::tally::{SwapDevice, Tally};
use folioswap_slots::{Order, Policy};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_distr::{Distribution, LogNormal, weighted::WeightedIndex};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Largest size of a task, as a multiple of the median: a lognormal distribution has no end, a
/// compiler has.
pub(super) const TASK_PAGES_MAX_OF_MEDIAN: f64 = 4.0;
/// Rounds over all jobs between two reports of progress.
const ROUNDS_PER_REPORT: u64 = 64;

/// Whether to stop a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Go on to the end.
    No,
    /// The user wants the end now.
    Yes,
}

/// A finished run.
#[derive(Debug)]
pub struct Outcome<R> {
    /// The counts.
    pub tally: Tally,
    /// The recorder.
    pub recorder: R,
    /// Whether all invariants of the allocator held at the end.
    pub consistent: bool,
}

/// Why a run did not begin, or did not end.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The parameters are wrong.
    #[error("{0}")]
    Parameters(#[from] BadParameters),
    /// There is no memory group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

/// A job: the current task of a logical CPU.
struct Job {
    cpu: u32,
    owner: u32,
    target_pages: u32,
    work_left: u64,
    folios: u64,
    /// Factor on the odds of order 0.
    order0_odds: f64,
    /// Rounds before its first step.
    delay: u64,
}

/// The random choices of a run.
struct Draw {
    random: Xoshiro256PlusPlus,
    /// Refusals have a stream of their own: the number of draws depends on the folios that were
    /// swapped out, and the work must not depend on that.
    refusals: Xoshiro256PlusPlus,
    task_pages: LogNormal<f64>,
    task_pages_max: f64,
    order0_odds: LogNormal<f64>,
    order0_weight: f64,
    large_weight: f64,
    /// Orders 1 to 9; none if all their weights are 0.
    large: Option<WeightedIndex<f64>>,
}

impl Draw {
    fn new(parameters: &BuildParameters, seed: u64) -> Result<Draw, BadParameters> {
        let task_pages = LogNormal::new(parameters.task_pages_median.ln(), parameters.task_pages_sigma);
        let order0_odds = LogNormal::new(0.0, parameters.order0_odds_sigma);
        let [order0_weight, large @ ..] = parameters.order_weights;
        Ok(Draw {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            refusals: Xoshiro256PlusPlus::seed_from_u64(!seed),
            task_pages: task_pages.map_err(|_| BadParameters("task_pages_sigma must be 0 to 3"))?,
            task_pages_max: parameters.task_pages_median * TASK_PAGES_MAX_OF_MEDIAN,
            order0_odds: order0_odds.map_err(|_| BadParameters("order0_odds_sigma must be 0 to 3"))?,
            order0_weight,
            large_weight: large.iter().sum(),
            large: WeightedIndex::new(large).ok(),
        })
    }

    fn task_pages(&mut self) -> u32 {
        self.task_pages.sample(&mut self.random).clamp(16.0, self.task_pages_max.max(16.0)) as u32
    }

    fn order(&mut self, odds: f64) -> Order {
        let small = self.order0_weight * odds;
        let large = self
            .large
            .as_ref()
            .filter(|_| self.random.random::<f64>() * (small + self.large_weight) >= small);
        let order = large.map_or(0, |large| 1 + large.sample(&mut self.random) as u32);
        Order::new(order).unwrap_or(Order::ZERO)
    }

    /// A number whose mean is `mean`: its integer part, and one more with the probability of its
    /// fraction.
    fn times(&mut self, mean: f64) -> u32 {
        mean as u32 + u32::from(self.random.random::<f64>() < mean.fract())
    }

    fn access(&mut self, write_share: f64) -> Access {
        if self.random.random::<f64>() < write_share { Access::Write } else { Access::Read }
    }
}

/// Runs a build to its end. `report` is called with the number of ended tasks, and may stop it.
///
/// Cost: about a microsecond per step; a full-size build has some ten million.
///
/// # Errors
/// [`BuildError`].
pub fn run_build<P: Policy, R: Recorder>(
    parameters: &BuildParameters,
    device: SwapDevice,
    seed: u64,
    recorder: R,
    mut report: impl FnMut(u32) -> Stopped,
) -> Result<Outcome<R>, BuildError> {
    parameters.check()?;
    let mut draw = Draw::new(parameters, seed)?;
    let mut group: MemoryGroup<P, R> = MemoryGroup::new(
        parameters.cpus,
        parameters.limit_pages,
        device,
        parameters.readahead_pages,
        recorder,
    )?;
    let files = group.new_owner(MemoryType::Shmem);
    // The source tree is unpacked on any CPU.
    for _ in 0..parameters.source_pages {
        let cpu = draw.random.random_range(0..parameters.cpus);
        group.fault_new(cpu, files, Order::ZERO);
        group.step();
    }
    let mut begun = 0;
    let mut ended = 0;
    let mut jobs: Vec<Job> = Vec::new();
    for index in 0..parameters.jobs.min(parameters.tasks) {
        let owner = group.new_owner(MemoryType::Anonymous);
        // Jobs do not run in step: each of the first tasks begins within the time of a median task.
        let delay = draw.random.random_range(0..=parameters.median_steps());
        let cpu = index % parameters.cpus;
        jobs.push(Job { cpu, owner, target_pages: 0, work_left: 0, folios: 0, order0_odds: 1.0, delay });
        let job = jobs.len() - 1;
        begin(&mut jobs[job], &mut group, &mut draw, parameters, files);
        begun += 1;
    }
    let mut round = 0u64;
    while !jobs.is_empty() {
        // The order changes, so that no job is always the one that reclaims first.
        jobs.shuffle(&mut draw.random);
        let mut index = 0;
        while index < jobs.len() {
            group.step();
            let job = &mut jobs[index];
            if step(job, &mut group, &mut draw, parameters) == Progress::Working {
                index += 1;
                continue;
            }
            group.free_all(job.cpu, job.owner);
            for _ in 0..parameters.object_pages {
                group.fault_new(job.cpu, files, Order::ZERO);
            }
            ended += 1;
            if begun < parameters.tasks {
                begun += 1;
                begin(job, &mut group, &mut draw, parameters, files);
                index += 1;
            } else {
                jobs.swap_remove(index);
            }
        }
        round += 1;
        if round.is_multiple_of(ROUNDS_PER_REPORT) && report(ended) == Stopped::Yes {
            return Err(BuildError::Stopped);
        }
    }
    report(ended);
    let consistent = group.is_consistent();
    let (tally, recorder) = group.finish();
    Ok(Outcome { tally, recorder, consistent })
}

/// Begins a new task, which reads its source.
fn begin<P: Policy, R: Recorder>(
    job: &mut Job,
    group: &mut MemoryGroup<P, R>,
    draw: &mut Draw,
    parameters: &BuildParameters,
    files: u32,
) {
    job.target_pages = draw.task_pages();
    job.order0_odds = draw.order0_odds.sample(&mut draw.random);
    job.work_left = 0;
    job.folios = 0;
    let pages = parameters.source_pages as u32;
    for _ in 0..parameters.source_reads {
        if pages == 0 {
            break;
        }
        let first = draw.random.random_range(0..pages);
        for page in first..(first + parameters.touch_run_pages).min(pages) {
            group.touch(job.cpu, files, page, Access::Read, |_| Extent::Folio);
        }
    }
}

#[derive(PartialEq, Eq)]
enum Progress {
    Working,
    Done,
}

/// Makes one folio more, or one step of work, and some accesses to the task's memory.
fn step<P: Policy, R: Recorder>(
    job: &mut Job,
    group: &mut MemoryGroup<P, R>,
    draw: &mut Draw,
    parameters: &BuildParameters,
) -> Progress {
    if job.delay > 0 {
        job.delay -= 1;
        return Progress::Working;
    }
    let pages = group.pages_of(job.owner);
    if pages < job.target_pages {
        let order = draw.order(job.order0_odds);
        group.fault_new(job.cpu, job.owner, order);
        job.folios += 1;
        job.work_left = (job.folios as f64 * parameters.work_steps_per_folio) as u64;
    } else if job.work_left == 0 {
        return Progress::Done;
    } else {
        job.work_left -= 1;
    }
    let pages = group.pages_of(job.owner);
    for _ in 0..draw.times(parameters.cold_touches_per_step) {
        let first = draw.random.random_range(0..pages);
        let access = draw.access(parameters.write_share);
        for page in first..(first + parameters.touch_run_pages).min(pages) {
            group.touch(job.cpu, job.owner, page, access, |order| {
                let refused = parameters.swapin_refused[order.index()];
                if draw.refusals.random::<f64>() < refused { Extent::Page } else { Extent::Folio }
            });
        }
    }
    Progress::Working
}

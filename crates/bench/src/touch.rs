//! The program that is measured: it fills memory with data that can be verified, reads it in order,
//! in strides and at random, and changes it.

use crate::data::{self, Kind, PAGE, Random};
use crate::histogram::Histogram;
use crate::hot_set::HotTouches;
use crate::memory::Mapping;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The parameters of a run.
///
/// `fill`, `rewrite`, `reread` and `verify` go upwards, and with `-down` after the name downwards;
/// `strided` reads every seventeenth page, then the pages behind those, and so on; `random` touches
/// pages at random; `islands` fills one page of seven; `changes` reads in order, touches at random,
/// and reads in order again, each timed by itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory.
    pub size: u64,
    /// The kind of data.
    pub kind: Kind,
    /// Phases, in order; see [`PHASES`].
    pub phases: Vec<String>,
    /// Threads, each with a share of the memory.
    pub threads: usize,
    /// Random touches of all threads together.
    pub touches: u64,
    /// Percent of the random touches that write.
    pub writes: u64,
    /// Advice on huge pages; `None` gives none, so that the machine's setting decides.
    pub advice: Option<Advice>,
    /// Seed of the contents and of the random touches.
    pub seed: u64,
}

/// The advice on huge pages that the program gives for its memory with madvise(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// MADV_HUGEPAGE.
    HugePages,
    /// MADV_NOHUGEPAGE.
    NoHugePages,
}

impl Advice {
    /// The advice's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Advice::HugePages => "hugepage",
            Advice::NoHugePages => "nohugepage",
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            size: 64 << 20,
            kind: Kind::Mixed,
            phases: ["fill", "reread", "random", "verify"].map(str::to_owned).into(),
            threads: 1,
            touches: 20_000,
            writes: 30,
            advice: None,
            seed: 1,
        }
    }
}

/// Names of the phases; those that go in order may end in `-down`.
pub const PHASES: [&str; 8] =
    ["fill", "rewrite", "reread", "strided", "random", "changes", "verify", "islands"];

/// The steps of the phase `changes`.
const CHANGES: [&str; 3] = [IN_ORDER, AT_RANDOM, IN_ORDER];
const IN_ORDER: &str = "changes: in order";
const AT_RANDOM: &str = "changes: at random";

/// Whether `name` is the name of a phase.
pub fn is_phase(name: &str) -> bool {
    let upwards =
        name.strip_suffix("-down").filter(|name| !matches!(*name, "random" | "strided" | "changes"));
    PHASES.contains(&upwards.unwrap_or(name))
}

/// The steps of these phases, each of which is timed by itself.
pub fn steps(phases: &[String]) -> Vec<String> {
    let of = |phase: &String| match phase.as_str() {
        "changes" => CHANGES.map(str::to_owned).into(),
        _ => vec![phase.clone()],
    };
    phases.iter().flat_map(of).collect()
}

/// The timing of a phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Timing {
    /// The phase's name.
    pub phase: String,
    /// Number of the process, from 0.
    pub process: usize,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
    /// Pages touched a second.
    pub touches_per_s: f64,
    /// Median latency of a page's first access in the phase, the one that may fault, nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile of these latencies, nanoseconds.
    pub p99_ns: u64,
    /// The 99.9th percentile of these latencies, nanoseconds.
    pub p999_ns: u64,
    /// Time that the timing of a touch takes, nanoseconds. It is in `seconds` once for each timed
    /// touch, and in the percentiles.
    #[serde(default)]
    pub clock_ns: u64,
    /// Resident memory at the end of the phase; `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<Resident>,
    /// Outcomes of the touches of the hot set, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<HotTouches>,
    /// A checksum of the program's output, where outputs are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Pages from one strided touch to the next.
const STRIDE: usize = 17;

/// The phase `islands` fills one page of this many.
const ISLANDS: usize = 7;

/// The direction in which a phase goes through the memory.
#[derive(Clone, Copy)]
enum Goes {
    Up,
    Down,
}

impl Goes {
    /// All page numbers, in this direction.
    fn over(self, pages: u64) -> impl Iterator<Item = usize> {
        let last = pages as usize - 1;
        (0..pages as usize).map(move |step| match self {
            Goes::Up => step,
            Goes::Down => last - step,
        })
    }
}

/// One thread's share of the memory.
struct Share<'a> {
    memory: &'a mut [u8],
    versions: &'a mut [u8],
    first_page: u64,
    latencies: Histogram,
}

/// Reads the first word of a page, and adds the latency.
pub(crate) fn timed_touch(page: &[u8], latencies: &mut Histogram) -> u64 {
    let start = Instant::now();
    // SAFETY: the word lies within the page and is aligned. The access is volatile because it is
    // the touch that is timed.
    let word = unsafe { page.as_ptr().cast::<u64>().read_volatile() };
    latencies.add(start.elapsed().as_nanos() as u64);
    word
}

/// Zeroes the first word of a page that is about to be filled, and adds the latency.
pub(crate) fn timed_write(page: &mut [u8], latencies: &mut Histogram) {
    let start = Instant::now();
    // SAFETY: as in `timed_touch`.
    unsafe { page.as_mut_ptr().cast::<u64>().write_volatile(0) };
    latencies.add(start.elapsed().as_nanos() as u64);
}

/// Time that the timing of a touch takes, nanoseconds: the mean of 10 000, which take a millisecond
/// at most.
pub(crate) fn clock_ns() -> u64 {
    const TIMES: u32 = 10_000;
    let (page, mut unwanted) = ([0u64; PAGE / 8], Histogram::default());
    let bytes = page.map(u64::to_ne_bytes);
    let start = Instant::now();
    for _ in 0..TIMES {
        timed_touch(bytes.as_flattened(), &mut unwanted);
    }
    (start.elapsed() / TIMES).as_nanos() as u64
}

impl Share<'_> {
    fn run(&mut self, phase: &str, options: &Options, seed: u64, index: u64) -> Result<(), String> {
        let (kind, base) = (options.kind, self.first_page);
        let pages = (self.memory.len() / PAGE) as u64;
        let (phase, goes) = match phase.strip_suffix("-down") {
            Some(phase) => (phase, Goes::Down),
            None => (phase, Goes::Up),
        };
        match phase {
            "fill" | "rewrite" | "islands" => {
                let step = if phase == "islands" { ISLANDS } else { 1 };
                for page in goes.over(pages).step_by(step) {
                    let out = &mut self.memory[page * PAGE..][..PAGE];
                    if phase == "rewrite" {
                        self.versions[page] += 1;
                    }
                    timed_write(out, &mut self.latencies);
                    data::fill(out, kind, seed, u64::from(self.versions[page]), base + page as u64);
                }
            }
            "reread" | IN_ORDER => {
                // Every word is read, as a program would; only the first one is compared.
                let mut sum = 0u64;
                for page in goes.over(pages) {
                    let bytes = &self.memory[page * PAGE..][..PAGE];
                    let first = timed_touch(bytes, &mut self.latencies);
                    let version = u64::from(self.versions[page]);
                    data::check_first(first, bytes, kind, seed, version, base + page as u64)?;
                    sum = sum.wrapping_add(data::sum(bytes));
                }
                std::hint::black_box(sum);
            }
            "random" | AT_RANDOM => {
                let mut random = Random::new(seed ^ 0x7261_6e64 ^ index << 32);
                for _ in 0..options.touches / options.threads as u64 {
                    let page = random.below(pages) as usize;
                    let write = random.below(100) < options.writes;
                    let bytes = &mut self.memory[page * PAGE..][..PAGE];
                    let word = timed_touch(bytes, &mut self.latencies);
                    let version = u64::from(self.versions[page]);
                    data::check_first(word, bytes, kind, seed, version, base + page as u64)?;
                    if write {
                        self.versions[page] = self.versions[page].wrapping_add(1) % 200;
                        let version = u64::from(self.versions[page]);
                        data::fill(bytes, kind, seed, version, base + page as u64);
                    }
                }
            }
            "strided" => {
                let pages = pages as usize;
                for page in (0..STRIDE).flat_map(|first| (first..pages).step_by(STRIDE)) {
                    let bytes = &self.memory[page * PAGE..][..PAGE];
                    let word = timed_touch(bytes, &mut self.latencies);
                    let version = u64::from(self.versions[page]);
                    data::check_first(word, bytes, kind, seed, version, base + page as u64)?;
                }
            }
            "verify" => {
                for page in goes.over(pages) {
                    let bytes = &self.memory[page * PAGE..][..PAGE];
                    timed_touch(bytes, &mut self.latencies);
                    data::check(bytes, kind, seed, u64::from(self.versions[page]), base + page as u64)?;
                }
            }
            _ => return Err(format!("unknown phase {phase}")),
        }
        Ok(())
    }
}

/// Runs all phases. `process` numbers the copies of the program that run at a time. `tell` is
/// called after each phase.
///
/// # Errors
/// The wrong page and how it is wrong, or the name of an unknown phase.
pub fn touch(options: &Options, process: usize, mut tell: impl FnMut(Timing)) -> Result<(), String> {
    let seed = options.seed + 1000 * process as u64;
    let pages = (options.size as usize / PAGE).next_multiple_of(options.threads);
    let mut memory = Mapping::new(pages * PAGE);
    match options.advice {
        Some(Advice::HugePages) => memory.advise(libc::MADV_HUGEPAGE),
        Some(Advice::NoHugePages) => memory.advise(libc::MADV_NOHUGEPAGE),
        None => {}
    }
    let mut versions = vec![0u8; pages];
    let each = pages / options.threads;
    let clock_ns = clock_ns();
    for phase in &steps(&options.phases) {
        let start = Instant::now();
        let results: Vec<Result<Histogram, String>> = std::thread::scope(|scope| {
            let shares = memory.chunks_exact_mut(each * PAGE).zip(versions.chunks_exact_mut(each));
            let threads: Vec<_> = shares
                .enumerate()
                .map(|(index, (memory, versions))| {
                    scope.spawn(move || {
                        let first_page = (index * each) as u64;
                        let mut share =
                            Share { memory, versions, first_page, latencies: Histogram::default() };
                        share.run(phase, options, seed, index as u64).map(|()| share.latencies)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let seconds = start.elapsed().as_secs_f64();
        let mut latencies = Histogram::default();
        for result in results {
            latencies.merge(&result?);
        }
        let is_random = matches!(phase.as_str(), "random" | AT_RANDOM);
        let done = if is_random { options.touches as f64 } else { pages as f64 };
        let start = memory.as_ptr() as usize;
        let round = |value: f64, digits: f64| (value * digits).round() / digits;
        tell(Timing {
            phase: phase.clone(),
            process,
            seconds: round(seconds, 1e4),
            mb_per_s: round(done * PAGE as f64 / 1e6 / seconds, 10.0),
            touches_per_s: (done / seconds).round(),
            p50_ns: latencies.percentile(0.5),
            p99_ns: latencies.percentile(0.99),
            p999_ns: latencies.percentile(0.999),
            clock_ns,
            resident: Resident::of(start..start + memory.len()).ok(),
            ..Timing::default()
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;

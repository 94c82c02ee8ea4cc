//! Fills memory with data that can be verified, reads it back in order and at random, and changes it.
//!
//! `acc-touch --size 256M --kind mixed --phases fill,reread,random,verify [--threads N] [--processes N]
//! [--touches N] [--writes PERCENT] [--huge yes|no] [--seed N] [--timing]`
//!
//! `fill`, `rewrite`, `reread` and `verify` go upwards, as `fill-down` and so on downwards; `islands` fills one page of seven.
//!
//! Prints one line that depends on nothing but the arguments. `--timing` adds one JSON object per phase on standard
//! error: MB/s, and for random touches p50, p99 and p99.9 in nanoseconds.

use folioswap_acceptance::data::{self, Kind, PAGE, Random};
use folioswap_acceptance::memory::{Mapping, parse_size};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Clone)]
struct Options {
    size: u64,
    kind: Kind,
    phases: Vec<String>,
    threads: usize,
    processes: usize,
    touches: u64,
    writes: u64,
    huge: Option<bool>,
    seed: u64,
    timing: bool,
}

fn parse() -> Result<Options, String> {
    let mut options = Options {
        size: 64 << 20,
        kind: Kind::Mixed,
        phases: vec!["fill".into(), "reread".into(), "random".into(), "verify".into()],
        threads: 1,
        processes: 1,
        touches: 20_000,
        writes: 30,
        huge: None,
        seed: 1,
        timing: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--timing" {
            options.timing = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} lacks its value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
        match name.as_str() {
            "--size" => options.size = parse_size(&value)?,
            "--kind" => options.kind = Kind::parse(&value)?,
            "--phases" => options.phases = value.split(',').map(str::to_owned).collect(),
            "--threads" => options.threads = number()?.max(1) as usize,
            "--processes" => options.processes = number()?.max(1) as usize,
            "--touches" => options.touches = number()?,
            "--writes" => options.writes = number()?,
            "--huge" => options.huge = Some(value == "yes"),
            "--seed" => options.seed = number()?,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(options)
}

/// Times from 1 ns in steps of 1/32.
struct Histogram(Vec<u64>);

impl Histogram {
    fn new() -> Self {
        Histogram(vec![0; 64 * 32])
    }
    fn add(&mut self, ns: u64) {
        let ns = ns.max(32);
        let power = ns.ilog2();
        let step = (ns >> (power - 5)) & 31;
        self.0[(power as u64 * 32 + step) as usize] += 1;
    }
    fn percentile(&self, part: f64) -> u64 {
        let total: u64 = self.0.iter().sum();
        let wanted = (total as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                let (power, step) = (index as u64 / 32, index as u64 % 32);
                return (32 + step) << (power.max(5) - 5);
            }
        }
        0
    }
}

/// One page of so many is filled by the phase `islands`.
const ISLANDS: usize = 7;

/// Which way a phase goes through the memory.
#[derive(Clone, Copy)]
enum Goes {
    Up,
    Down,
}

impl Goes {
    /// All pages, in this order.
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
                    data::fill(out, kind, seed, u64::from(self.versions[page]), base + page as u64);
                }
            }
            "reread" => {
                // Every word is read, as a program would; the first one is compared.
                let mut sum = 0u64;
                for page in goes.over(pages) {
                    let bytes = &self.memory[page * PAGE..][..PAGE];
                    let (words, _) = bytes.as_chunks::<8>();
                    let version = u64::from(self.versions[page]);
                    let first = u64::from_ne_bytes(words[0]);
                    if first != data::first_word(kind, seed, version, base + page as u64) {
                        data::check(bytes, kind, seed, version, base + page as u64)?;
                    }
                    sum = words.iter().fold(sum, |sum, &word| sum.wrapping_add(u64::from_ne_bytes(word)));
                }
                std::hint::black_box(sum);
            }
            "random" => {
                let mut random = Random::new(seed ^ 0x7261_6e64 ^ index << 32);
                for _ in 0..options.touches / options.threads as u64 {
                    let page = random.below(pages) as usize;
                    let write = random.below(100) < options.writes;
                    let bytes = &mut self.memory[page * PAGE..][..PAGE];
                    let start = Instant::now();
                    // SAFETY: within the page, aligned. Volatile: the touch is what is timed.
                    let word = unsafe { bytes.as_ptr().cast::<u64>().read_volatile() };
                    self.latencies.add(start.elapsed().as_nanos() as u64);
                    let version = u64::from(self.versions[page]);
                    if word != data::first_word(kind, seed, version, base + page as u64) {
                        data::check(bytes, kind, seed, version, base + page as u64)?;
                    }
                    if write {
                        self.versions[page] = self.versions[page].wrapping_add(1) % 200;
                        let version = u64::from(self.versions[page]);
                        data::fill(bytes, kind, seed, version, base + page as u64);
                    }
                }
            }
            "verify" => {
                for page in goes.over(pages) {
                    let bytes = &self.memory[page * PAGE..][..PAGE];
                    data::check(bytes, kind, seed, u64::from(self.versions[page]), base + page as u64)?;
                }
            }
            _ => return Err(format!("unknown phase {phase}")),
        }
        Ok(())
    }
}

fn work(options: &Options, process: usize) -> Result<(), String> {
    let seed = options.seed + 1000 * process as u64;
    let pages = (options.size as usize / PAGE).next_multiple_of(options.threads);
    let mut memory = Mapping::new(pages * PAGE);
    match options.huge {
        Some(true) => memory.advise(libc::MADV_HUGEPAGE),
        Some(false) => memory.advise(libc::MADV_NOHUGEPAGE),
        None => {}
    }
    let mut versions = vec![0u8; pages];
    let each = pages / options.threads;
    for phase in &options.phases {
        let start = Instant::now();
        let results: Vec<Result<Histogram, String>> = std::thread::scope(|scope| {
            let shares = memory.chunks_exact_mut(each * PAGE).zip(versions.chunks_exact_mut(each));
            let threads: Vec<_> = shares
                .enumerate()
                .map(|(index, (memory, versions))| {
                    scope.spawn(move || {
                        let first_page = (index * each) as u64;
                        let mut share = Share { memory, versions, first_page, latencies: Histogram::new() };
                        share.run(phase, options, seed, index as u64).map(|()| share.latencies)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let seconds = start.elapsed().as_secs_f64();
        let mut latencies = Histogram::new();
        for result in results {
            for (sum, count) in latencies.0.iter_mut().zip(result?.0) {
                *sum += count;
            }
        }
        if options.timing {
            let done = if phase == "random" { options.touches as f64 } else { pages as f64 };
            eprintln!(
                "{{\"phase\":\"{phase}\",\"process\":{process},\"seconds\":{seconds:.4},\"mb_per_s\":{:.1},\
                 \"touches_per_s\":{:.0},\"p50_ns\":{},\"p99_ns\":{},\"p999_ns\":{}}}",
                done * PAGE as f64 / 1e6 / seconds,
                done / seconds,
                latencies.percentile(0.5),
                latencies.percentile(0.99),
                latencies.percentile(0.999)
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = match parse() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("acc-touch: {error}");
            return ExitCode::from(2);
        }
    };
    if let [kind] = options.phases.as_slice()
        && kind == "ratio"
    {
        for block in [4096, 65536] {
            println!("{block} {:.3}", data::lz4_ratio(options.kind, block, 4096));
        }
        return ExitCode::SUCCESS;
    }
    let mut children = Vec::new();
    for process in 1..options.processes {
        // SAFETY: no other threads exist yet.
        match unsafe { libc::fork() } {
            0 => {
                let result = work(&options, process);
                if let Err(error) = &result {
                    eprintln!("acc-touch: process {process}: {error}");
                }
                std::process::exit(i32::from(result.is_err()));
            }
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            pid => children.push(pid),
        }
    }
    let mut failed = false;
    if let Err(error) = work(&options, 0) {
        eprintln!("acc-touch: {error}");
        failed = true;
    }
    for pid in children {
        let mut status = 0;
        // SAFETY: waits for our own child.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        failed |= waited != pid || status != 0;
    }
    if failed {
        return ExitCode::FAILURE;
    }
    println!("ok {} bytes, {:?}, {}", options.size, options.kind, options.phases.join(" "));
    ExitCode::SUCCESS
}

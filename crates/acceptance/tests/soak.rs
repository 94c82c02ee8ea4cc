//! Programs that verify their own memory, under limits, devices, folio sizes and failures of the
//! kernel's calls that are chosen at random, one after the other, for as long as one likes.
//!
//! `FOLIOSWAP_SOAK_SECONDS=3600` goes on for an hour. Seed and number of each run are printed;
//! `FOLIOSWAP_SEED` sets the seed, and `FOLIOSWAP_SOAK_RUN=N` repeats the run of that number alone.

use folioswap_acceptance::job::{self, Engine, Job};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, skip};
use std::time::{Duration, Instant, SystemTime};

const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const COUNTERS: &str = env!("CARGO_BIN_EXE_acc-counters");

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Random numbers of splitmix64. Each run has a series of its own, so it can be repeated alone.
struct Random(u64);

impl Random {
    fn of(seed: u64, run: u64) -> Self {
        Random(seed ^ run.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// The devices that a run may have: options of `run`. Each takes all that is swapped out.
const DEVICES: &[&[&str]] = &[
    &[],
    &["--swap", "file:/var/tmp,size=2G"],
    &["--swap", "file:/var/tmp,size=2G,encrypt=yes"],
    &["--swap", "zram,prio=2", "--swap", "file:/var/tmp,size=2G,prio=1"],
];

const FOLIOS: &[&[&str]] =
    &[&[], &[], &["--thp", "all=never"], &["--thp", "64k=always"], &["--thp", "16k=always,512k=always"]];

const CLUSTERS: &[&[&str]] = &[&[], &["--page-cluster", "0"], &["--page-cluster", "3"]];

/// Cases of `c/mappings.c` and `c/fork.c` that verify themselves whatever fails meanwhile.
const MAPPINGS: &[&str] = &[
    "heap",
    "stacks",
    "guards",
    "signals",
    "holes",
    "code",
    "dontneed",
    "churn",
    "replace",
    "remap",
    "remap-steps",
    "remap-keep",
    "private",
    "protect",
    "grow",
    "shared",
    "move-several",
    "zeroes",
    "zeroes-forked",
];
const FORKS: &[&str] = &["storm", "grandchildren", "generations"];

/// A program, and the memory in MiB that it needs.
fn program(random: &mut Random) -> (Vec<String>, u64) {
    let c = |name: &str, words: &[&str]| {
        let program = c_program(name, "", &[]).display().to_string();
        std::iter::once(program).chain(words.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
    };
    let mib = 64 + random.below(128);
    let size = mib.to_string();
    match random.below(5) {
        0 => {
            let kind = random.one_of(&["2", "3", "mixed", "random", "zero", "same"]);
            let threads = (1 + random.below(4)).to_string();
            let phases = random.one_of(&[
                "fill,reread,random,verify",
                "fill,random,rewrite,verify",
                "islands,fill-down,verify-down",
            ]);
            let size = format!("{mib}M");
            let words = [
                "--size",
                &size,
                "--kind",
                kind,
                "--threads",
                &threads,
                "--phases",
                phases,
                "--touches",
                "5000",
            ];
            (std::iter::once(TOUCH).chain(words).map(str::to_owned).collect(), mib)
        }
        1 => {
            let size = format!("{mib}M");
            let words = [
                COUNTERS,
                "--size",
                &size,
                "--threads",
                "4",
                "--seconds",
                "4",
                "--run",
                random.one_of(&["1", "16"]),
            ];
            (words.map(str::to_owned).to_vec(), mib)
        }
        2 => (c("mappings", &[random.one_of(MAPPINGS), &size]), mib),
        3 => (c("fork", &[random.one_of(FORKS), &size]), mib * 2),
        _ => {
            let seed = random.below(1 << 20).to_string();
            (c("tree", &["4", &(mib / 4).to_string(), "4", "6", &seed]), mib)
        }
    }
}

fn run(seed: u64, number: u64) {
    let mut random = Random::of(seed, number);
    let (words, need) = program(&mut random);
    // From a quarter of what it needs to nearly all of it; 24 MiB at least.
    let limit = (need / 4 + random.below(need * 5 / 8)).max(24);
    let options = [random.one_of(DEVICES), random.one_of(FOLIOS), random.one_of(CLUSTERS)].concat();
    let fail =
        (random.below(2) == 0).then(|| format!("{},{}", random.below(1 << 30), 20 + random.below(200)));
    println!("soak: run {number} of FOLIOSWAP_SEED={seed}: {limit}M {options:?} {fail:?} {words:?}");
    let job = options.iter().fold(Job::new(&words), |job, option| job.option(option));
    let job = fail.iter().fold(job, |job, fail| job.option("--fail").option(fail));
    let scope = random.one_of(&["total", "resident"]);
    let outcome =
        job.timeout(Duration::from_secs(600)).under(Engine::Folioswap { memory: Some(limit * MIB), scope });
    job::report("soak", &outcome);
    outcome.check();
    assert!(outcome.text().contains("ok"), "{}", outcome.describe());
}

#[test]
fn soak() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_nanos() as u64;
    let seed = setting("FOLIOSWAP_SEED").unwrap_or(now);
    if let Some(number) = setting("FOLIOSWAP_SOAK_RUN") {
        return run(seed, number);
    }
    let time = Duration::from_secs(setting("FOLIOSWAP_SOAK_SECONDS").unwrap_or(job::amount(120, 600)));
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < time {
        run(seed, number);
        number += 1;
    }
    println!("soak: {number} runs of FOLIOSWAP_SEED={seed} in {:.0} s", start.elapsed().as_secs_f64());
}

//! Programs that verify their own memory, under limits, devices, folio sizes and failures of the
//! kernel's calls that are chosen at random, one after the other, for as long as one likes.
//!
//! `FOLIOSWAP_SOAK_SECONDS=3600` goes on for an hour. Seed and number of each run are printed;
//! `FOLIOSWAP_SEED` sets the seed, and `FOLIOSWAP_SOAK_RUN=N` repeats the run of that number alone.

use folioswap_acceptance::job::{self, Engine, Job};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, skip};
use folioswap_test_support::{environment, random::Random};
use std::process::Command;
use std::time::{Duration, Instant};

const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const COUNTERS: &str = env!("CARGO_BIN_EXE_acc-counters");

/// The random numbers of a run. Each run has a series of its own, so it can be repeated alone.
fn series(seed: u64, run: u64) -> Random {
    Random::new((seed ^ run.wrapping_mul(0xd134_2543_de82_ef95)).max(1))
}

fn one_of<'a, T: ?Sized>(random: &mut Random, all: &[&'a T]) -> &'a T {
    all[random.below(all.len() as u64) as usize]
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
    "protect",
    "grow",
    "shared",
    "move-several",
    "zeroes",
    "zeroes-forked",
];
const FORKS: &[&str] = &["storm", "grandchildren", "generations"];

/// The C programs that soak runs, with those of their cases that it draws.
const CASES: &[(&str, &[&str])] = &[("mappings", MAPPINGS), ("fork", FORKS)];

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
            let kind = one_of(random, &["2", "3", "mixed", "random", "zero", "same"]);
            let threads = (1 + random.below(4)).to_string();
            let phases = one_of(
                random,
                &["fill,reread,random,verify", "fill,random,rewrite,verify", "islands,fill-down,verify-down"],
            );
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
                one_of(random, &["1", "16"]),
            ];
            (words.map(str::to_owned).to_vec(), mib)
        }
        2 => (c("mappings", &[one_of(random, MAPPINGS), &size]), mib),
        3 => (c("fork", &[one_of(random, FORKS), &size]), mib * 2),
        _ => {
            let seed = random.below(1 << 20).to_string();
            (c("tree", &["4", &(mib / 4).to_string(), "4", "6", &seed]), mib)
        }
    }
}

fn run(seed: u64, number: u64) {
    let mut random = series(seed, number);
    let (words, need) = program(&mut random);
    // From a quarter of what it needs to nearly all of it; 24 MiB at least.
    let limit = (need / 4 + random.below(need * 5 / 8)).max(24);
    let options =
        [one_of(&mut random, DEVICES), one_of(&mut random, FOLIOS), one_of(&mut random, CLUSTERS)].concat();
    let fail =
        (random.below(2) == 0).then(|| format!("{},{}", random.below(1 << 30), 20 + random.below(200)));
    println!("soak: run {number} of FOLIOSWAP_SEED={seed}: {limit}M {options:?} {fail:?} {words:?}");
    let job = options.iter().fold(Job::new(&words), |job, option| job.option(option));
    let job = fail.iter().fold(job, |job, fail| job.option("--fail").option(fail));
    let scope = one_of(&mut random, &["total", "resident"]);
    let outcome =
        job.timeout(Duration::from_secs(600)).under(Engine::Folioswap { memory: Some(limit * MIB), scope });
    job::report("soak", &outcome);
    outcome.check();
    assert!(outcome.text().contains("ok"), "{}", outcome.describe());
}

/// A case that is drawn once in a hundred runs is not to be found missing by chance.
#[test]
fn every_case_that_is_drawn_exists() {
    for (program, cases) in CASES {
        for case in *cases {
            let ran = Command::new(c_program(program, "", &[])).args([case, "4"]).output().expect("it runs");
            let said = String::from_utf8_lossy(&ran.stderr);
            // Some cases want their memory to be swapped out, and say so here.
            assert!(!said.contains("no such case"), "{program} {case}: {said}");
        }
    }
}

#[test]
fn soak() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let seed = environment::number("FOLIOSWAP_SEED", Random::fresh_seed());
    if std::env::var_os("FOLIOSWAP_SOAK_RUN").is_some() {
        return run(seed, environment::number("FOLIOSWAP_SOAK_RUN", 0));
    }
    let time = Duration::from_secs(environment::number("FOLIOSWAP_SOAK_SECONDS", job::amount(120, 600)));
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < time {
        run(seed, number);
        number += 1;
    }
    println!("soak: {number} runs of FOLIOSWAP_SEED={seed} in {:.0} s", start.elapsed().as_secs_f64());
}

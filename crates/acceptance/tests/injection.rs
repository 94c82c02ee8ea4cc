//! Programs that cannot preload the agent, because they are static, of musl, or Go's: the
//! supervisor puts it into them at their exec (race 81 of `docs/races.md`).
//!
//! Each kind of program runs in each of the three ways: with all rights, with a device for
//! userfaultfd only, and without any permission.
#![cfg(target_arch = "x86_64")]

use folioswap_acceptance::job::{self, Job, NOBODY, Outcome};
use folioswap_acceptance::programs::{Musl, c_program, c_program_by, go_program, rust_program, which};
use folioswap_acceptance::{MIB, need, only_root, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: u64 = 32 * MIB;

/// Skips the test where the ways cannot be taken, or the kinds not be made.
macro_rules! everything_is_here {
    () => {
        only_root!("become another user");
        need!("musl-gcc", "go", "busybox");
    };
}

/// Skips the test where Rust has no standard library for musl.
macro_rules! rust_is_here {
    () => {
        everything_is_here!();
        need!("rustc");
        if Musl::library().is_none() {
            skip!("Rust's target {} is not installed", Musl::TARGET);
        }
    };
}

/// Compilers and flags of the kinds that are written in C.
const KINDS: [(&str, &str, &[&str]); 4] = [
    ("cc", "-static", &["-static"]),
    ("cc", "-static-pie", &["-static-pie"]),
    ("musl-gcc", "-musl", &[]),
    ("musl-gcc", "-musl-static", &["-static"]),
];

/// A program in all of these kinds.
fn kinds(name: &str) -> impl Iterator<Item = PathBuf> {
    KINDS.into_iter().map(move |(compiler, suffix, flags)| c_program_by(compiler, name, suffix, flags))
}

const WAYS: [&str; 3] = ["kernel", "gated-forks", "gated-calls"];

fn job(way: &str, words: &[&str]) -> Job {
    let job = Job::new(words).timeout(Duration::from_secs(300));
    match way {
        "kernel" => job,
        "gated-forks" => job.without_sys_ptrace().user(NOBODY),
        _ => job.unprivileged(),
    }
}

/// Runs a job within a limit, and checks that this way was taken and everything managed.
fn run(way: &str, words: &[&str], limit: u64) -> Outcome {
    let outcome = job(way, words).within(limit);
    job::check_way(&outcome, way);
    outcome
}

/// Runs cases of a program in each kind and way: all of them in the long form, else one of them,
/// another one in each.
fn cases(programs: impl Iterator<Item = PathBuf>, cases: &[&str]) {
    for (kind, program) in programs.enumerate() {
        let path = program.to_str().expect("text");
        for (turn, way) in WAYS.into_iter().enumerate() {
            let first = (kind * WAYS.len() + turn) % cases.len();
            let count = job::amount(1, cases.len() as u64) as usize;
            for case in cases.iter().cycle().skip(first).take(count) {
                let outcome = run(way, &[path, case, "64"], LIMIT);
                job::check_swapped(&outcome, 30 * MIB);
                job::report(&format!("{case} {way}"), &outcome);
                assert_eq!(outcome.text(), format!("ok {case}\n"), "{path} {way}: {}", outcome.describe());
            }
        }
        println!("{}: {} cases in {} ways", program.display(), cases.len(), WAYS.len());
    }
}

#[test]
fn threads_and_trees_of_forks() {
    everything_is_here!();
    cases(kinds("fork"), &["threads", "storm", "grandchildren", "often"]);
}

#[test]
fn vfork_and_posix_spawn() {
    everything_is_here!();
    cases(kinds("fork"), &["spawn"]);
}

#[test]
fn signals_and_forks_by_number() {
    everything_is_here!();
    cases(kinds("gated"), &["signals", "handlers", "number", "waiting"]);
}

/// Vectors, tables, trees, deep stacks that panics unwind, children, files and streams.
#[test]
fn the_standard_library_of_rust() {
    rust_is_here!();
    let programs = Musl::ALL.into_iter().map(|linked| rust_program("library", linked));
    cases(programs, &["threads", "maps", "growth", "stacks", "children", "files", "network"]);
}

/// What system calls use, signals on stacks that are away and coroutines, with everything taken out
/// all the time. (musl has neither the headers nor the functions for it.)
#[test]
fn calls_signals_and_coroutines_while_everything_leaves() {
    everything_is_here!();
    let program = c_program("held", "-static", &["-static"]);
    let path = program.to_str().expect("text");
    let cases = [
        "files", "large", "vectors", "waiting", "streams", "results", "images", "moved", "signals",
        "threads", "pointers",
    ];
    for (turn, case) in cases.into_iter().enumerate() {
        // Both in the long form, else one of them.
        let both = job::amount(0, 1) == 1;
        if both || turn % 2 == 1 {
            let limited = run("gated-calls", &[path, case, "64"], 40 * MIB);
            assert_eq!(limited.text(), format!("ok {case}\n"), "{}", limited.describe());
        }
        if !both && turn % 2 == 1 {
            continue;
        }
        let swept = job("gated-calls", &[path, case, "16"]).option("--evict-all").within(400 * MIB);
        assert_eq!(swept.text(), format!("ok {case}\n"), "{}", swept.describe());
    }
}

/// A program of each kind that becomes another one.
fn links() -> Vec<PathBuf> {
    let mut programs: Vec<_> = kinds("chain").collect();
    programs.push(c_program("chain", "", &[]));
    programs.push(go_program("chain", "", "0"));
    programs.push(go_program("chain", "-cgo", "1"));
    programs
}

fn run_chain(way: &str, programs: &[&PathBuf], swapped: u64) {
    let mut words: Vec<_> = programs.iter().map(|program| program.to_str().expect("text")).collect();
    words.insert(1, "24");
    let outcome = run(way, &words, LIMIT);
    job::report(way, &outcome);
    assert_eq!(outcome.text(), "ok chain\n", "{}", outcome.describe());
    job::check_swapped(&outcome, swapped);
}

/// Each kind becomes each kind: a chain in which each pair of neighbours occurs once.
#[test]
fn each_kind_becomes_each_kind() {
    everything_is_here!();
    let programs = links();
    let mut order = Vec::new();
    for first in 0..programs.len() {
        order.push(first);
        order.extend((first + 1..programs.len()).flat_map(|second| [first, second]));
    }
    order.push(0);
    let chain: Vec<_> = order.into_iter().map(|number| &programs[number]).collect();
    for way in WAYS {
        run_chain(way, &chain, 8 * MIB);
    }
}

/// A Rust program becomes itself, and each other kind becomes it, and it becomes them: one Rust
/// program in each way, all of them in the long form.
#[test]
fn rust_becomes_each_kind() {
    rust_is_here!();
    let others = links();
    let mine = Musl::ALL.map(|linked| rust_program("chain", linked));
    for (turn, way) in WAYS.into_iter().enumerate() {
        for program in mine.iter().cycle().skip(turn).take(job::amount(1, 3) as usize) {
            let neighbours = mine.iter().chain(&others).flat_map(|other| [other, program]);
            run_chain(way, &[program].into_iter().chain(neighbours).collect::<Vec<_>>(), 3 * MIB);
        }
    }
}

/// A program of glibc's starts each kind without calling an exec function itself.
#[test]
fn each_kind_is_spawned() {
    everything_is_here!();
    let spawner = c_program("spawner", "", &[]);
    let mut programs: Vec<_> = kinds("chain").collect();
    programs.push(go_program("chain", "", "0"));
    for program in programs {
        for way in WAYS {
            let words = [spawner.to_str().expect("text"), program.to_str().expect("text"), "24"];
            let outcome = run(way, &words, LIMIT);
            let expected = "ok chain\n".repeat(5) + "ok spawner\n";
            assert_eq!(outcome.text(), expected, "{program:?} {way}: {}", outcome.describe());
        }
    }
}

/// Interpreters of scripts are programs too.
#[test]
fn a_script_whose_interpreter_is_static() {
    everything_is_here!();
    let busybox = which("busybox").expect("needed");
    let script = format!("/var/tmp/folioswap-acc-injected-{}.sh", std::process::id());
    let text = "for n in 1 2 3; do busybox seq 1 100000 | busybox sort -rn | busybox md5sum; done\n\
                busybox find /usr/share/doc | busybox sort | busybox sha1sum\n";
    fs::write(&script, format!("#!{} sh\n{text}", busybox.display())).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("chmod");
    let native = Job::new([&script]).unlimited();
    let outcomes = WAYS.map(|way| run(way, &[&script], LIMIT));
    let again = WAYS.map(|way| run(way, &["sh", "-c", &script], LIMIT));
    fs::remove_file(&script).expect("removed");
    for outcome in outcomes.iter().chain(&again) {
        assert_eq!((outcome.code, outcome.text()), (native.code, native.text()), "{}", outcome.describe());
    }
}

/// The status of what is put into, and signals that end it.
#[test]
fn statuses_and_signals_are_passed_on() {
    everything_is_here!();
    let busybox = which("busybox").expect("needed").display().to_string();
    for way in WAYS {
        let ended = |script: &str| {
            let outcome = job(way, &[&busybox, "sh", "-c", script]).under(job::engine(LIMIT));
            (outcome.code, outcome.signal)
        };
        assert_eq!(ended("exit 7"), (Some(7), None));
        assert_eq!(ended("kill -TERM $$"), (Some(143), None));
        let many = "for n in $(busybox seq 1 40); do busybox true & done; wait; echo all";
        assert_eq!(run(way, &["sh", "-c", many], 3 * LIMIT).text(), "all\n");
    }
}

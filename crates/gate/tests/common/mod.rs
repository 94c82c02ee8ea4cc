//! The object that is preloaded, programs of ours, and runs of both.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How the gate is armed: the text of its options.
pub const WAYS: [&str; 4] = ["print,no-rewriting", "print", "print,at-once", "print,hold"];

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The shared object, built by the profile of the agent.
pub fn object() -> &'static Path {
    static OBJECT: OnceLock<PathBuf> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let target = scratch().join("gate-alone");
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--offline",
                "--profile",
                "agent",
                "-p",
                "folioswap-gate-alone",
                "--target-dir",
            ])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env_remove("RUSTFLAGS")
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the object is built");
        target.join("agent/libfolioswap_gate_alone.so")
    })
}

/// Whether calls trap here: not in gVisor, nor before Linux 5.11. Notes the skip where they do not.
pub fn is_dispatched() -> bool {
    let mut command = Command::new("/bin/true");
    let output = run(command.env("LD_PRELOAD", object()).env("FOLIOSWAP_GATE", "print"));
    let there = figures(&output).is_some_and(|figures| figures.trapped > 0);
    if !there {
        folioswap_test_support::skipping::note("there is no Syscall User Dispatch");
    }
    there
}

/// A source in `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// A program of `tests/programs`, compiled.
pub fn program(name: &str, options: &[&str]) -> PathBuf {
    let source = source(name).with_extension("c");
    match source.exists() {
        true => compiled(&source, "gcc", options),
        false => compiled(&source.with_extension("cc"), "g++", options),
    }
}

/// A program of a source, by a compiler for C or C++.
pub fn compiled(source: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let name = source.file_stem().expect("a name").to_string_lossy();
    let built = scratch().join(format!("{name}-{}-{compiler}{}", std::process::id(), options.concat()));
    let status = Command::new(compiler)
        .args(["-w", "-O1", "-pthread", "-o"])
        .arg(&built)
        .arg(source)
        .args(options)
        .arg("-lrt")
        .status()
        .expect("a compiler is installed");
    assert!(status.success(), "{name} compiles");
    built
}

/// Runs a command to its end, which must come within two minutes.
pub fn run(command: &mut Command) -> Output {
    let child = command
        // Where memory is managed there is no rseq, and natively neither.
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let id = child.id();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if wait.recv_timeout(Duration::from_secs(120)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        }
    });
    let output = child.wait_with_output().expect("it ends");
    drop(done);
    watch.join().expect("the watch ends");
    output
}

/// What the gate printed of its last process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub trapped: u64,
    pub rewritten: u64,
    pub left_alone: u64,
    pub abandoned: u64,
}

pub fn figures(output: &Output) -> Option<Figures> {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rev().find_map(|line| line.split_once("gate: trapped ").map(|(_, rest)| rest))?;
    let mut words = line.split_whitespace();
    let mut next = || words.by_ref().find_map(|word| word.parse().ok()).unwrap_or(0);
    Some(Figures { trapped: next(), rewritten: next(), left_alone: next(), abandoned: next() })
}

/// The same without figures, for programs that read what others print.
pub const QUIET_WAYS: [&str; 4] = ["no-rewriting", "", "at-once", "hold"];

/// Runs the same natively and through the gate in each way; the output must not differ by a byte.
/// Returns the figures of each way.
pub fn same_through_the_gate(ways: &[&str], make: impl Fn() -> Command) -> Vec<Figures> {
    same(ways, &make, || {
        let mut command = make();
        command.env("LD_PRELOAD", object());
        command
    })
}

/// The same for a program that no loader gives the object to: it is put into it at its start.
pub fn same_injected(ways: &[&str], program: &Path, arguments: &[&str]) -> Vec<Figures> {
    static INJECTOR: OnceLock<PathBuf> = OnceLock::new();
    let injector = INJECTOR.get_or_init(|| self::program("inject", &[]));
    let native = || {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    same(ways, native, || {
        let mut command = Command::new(injector);
        command.arg(object()).arg(program).args(arguments);
        command
    })
}

fn same(ways: &[&str], native: impl Fn() -> Command, gated: impl Fn() -> Command) -> Vec<Figures> {
    let native = run(native().env_remove("LD_PRELOAD"));
    ways.iter()
        .map(|way| {
            let started = Instant::now();
            let gated = run(gated().env("FOLIOSWAP_GATE", way));
            let errors = String::from_utf8_lossy(&gated.stderr).into_owned();
            assert_eq!(native.status, gated.status, "{way}: {errors}");
            assert!(
                native.stdout == gated.stdout,
                "{way}: after {:?}\n{}\nnative:\n{}\n{errors}",
                started.elapsed(),
                String::from_utf8_lossy(&gated.stdout),
                String::from_utf8_lossy(&native.stdout)
            );
            figures(&gated).unwrap_or_default()
        })
        .collect()
}

/// The longer form where it is asked for.
pub fn by_length(short: u32, long: u32) -> String {
    match std::env::var_os("FOLIOSWAP_LONG") {
        Some(_) => long.to_string(),
        None => short.to_string(),
    }
}

//! Programs that no loader gives the gate to: static ones, of glibc, musl and Go, and musl's
//! dynamic ones. It is put into them before their first instruction.
#![cfg(target_arch = "x86_64")]

mod common;

use common::{by_length, compiled, is_dispatched, same_injected, source};
use std::path::Path;
use std::process::Command;

const WAYS: [&str; 2] = ["print", "print,hold"];

/// Whether a command is installed; notes the skip where it is not.
fn has(command: &str, argument: &str) -> bool {
    let there = Command::new(command).arg(argument).output().is_ok_and(|output| output.status.success());
    if !there {
        folioswap_test_support::skipping::note(&format!("{command} is not installed"));
    }
    there
}

fn check(compiler: &str, options: &[&str], programs: &[&str]) {
    if !has(compiler, "--version") || !is_dispatched() {
        return;
    }
    let length = by_length(20, 400);
    for name in programs {
        let built = compiled(&source(name).with_extension("c"), compiler, options);
        let figures = same_injected(&WAYS, &built, &[&length]);
        assert!(figures.iter().all(|way| way.trapped > 0), "{name}: the gate was armed: {figures:?}");
    }
}

/// What needs the kernel's headers, or functions that musl does not have, is not among musl's.
const MUSL: [&str; 6] = ["errors", "exec", "hammer", "registers", "stacks", "threads"];
const GLIBC: [&str; 6] = ["confined", "delivery", "own_sigsys", "processes", "signals", "crowd"];

#[test]
fn static_programs_of_glibc() {
    check("gcc", &["-static"], &[&MUSL[..], &GLIBC[..]].concat());
}

#[test]
fn static_programs_of_glibc_at_any_address() {
    check("gcc", &["-static-pie"], &["stacks", "threads", "signals"]);
}

#[test]
fn programs_of_musl() {
    check("musl-gcc", &[], &MUSL);
}

#[test]
fn static_programs_of_musl() {
    check("musl-gcc", &["-static"], &MUSL);
}

#[test]
fn static_programs_of_go() {
    if !has("go", "version") || !is_dispatched() {
        return;
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = place.join(format!("goroutines-{}", std::process::id()));
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&built)
        .arg(source("goroutines.go"))
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", place.join("go-cache"))
        .status()
        .expect("it runs");
    assert!(status.success(), "it compiles");
    let file = place.join(format!("goroutines-{}.file", std::process::id()));
    for _ in 0..by_length(5, 100).parse().expect("a number") {
        same_injected(
            &["print", "print,no-rewriting", "print,hold"],
            &built,
            &[file.to_str().expect("UTF-8")],
        );
    }
}

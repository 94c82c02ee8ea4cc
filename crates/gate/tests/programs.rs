//! Programs of ours, each natively and through the gate: its calls trapped, rewritten after three
//! traps, and rewritten at the first.
#![cfg(target_arch = "x86_64")]

mod common;

use common::{by_length, program, same_through_the_gate};
use std::process::Command;

fn check(name: &str, options: &[&str], arguments: &[String]) -> Vec<common::Figures> {
    if !common::is_dispatched() {
        return Vec::new();
    }
    let built = program(name, options);
    let figures = same_through_the_gate(&common::WAYS, || {
        let mut command = Command::new(&built);
        command.args(arguments);
        command
    });
    assert!(figures.iter().all(|way| way.trapped > 0), "the gate was armed: {figures:?}");
    println!("{name}: {figures:?}");
    figures
}

#[test]
fn registers_flags_and_the_red_zone_are_kept() {
    check("registers", &["-no-pie"], &[]);
}

#[test]
fn answers_and_errors_are_the_kernels() {
    check("errors", &[], &[]);
}

#[test]
fn processes_of_every_kind_begin_and_end() {
    check("processes", &[], &[by_length(30, 600)]);
}

#[test]
fn threads_begin_are_cancelled_and_fork() {
    check("threads", &[], &[by_length(20, 400)]);
}

#[test]
fn an_unwinder_finds_its_way_out() {
    if Command::new("g++").arg("--version").output().is_err() {
        folioswap_test_support::skipping::note("g++ is not installed");
        return;
    }
    check("unwinding", &[], &[]);
}

#[test]
fn signals_at_a_thousand_a_second_arrive() {
    check("signals", &[], &[by_length(100, 3000)]);
}

#[test]
fn handlers_find_what_they_would() {
    let figures = check("delivery", &[], &[by_length(3000, 30000)]);
    assert!(figures.iter().all(|way| way.abandoned > 500), "slots that were left are found: {figures:?}");
}

#[test]
fn a_thread_needs_no_stack_to_end_and_little_to_call() {
    check("stacks", &[], &[by_length(50, 2000)]);
}

#[test]
fn no_slot_is_lost_to_children_and_without_one_all_is_right() {
    check("crowd", &[], &[by_length(700, 3000)]);
}

#[test]
fn a_program_that_confines_itself_sees_no_call_of_the_gates() {
    check("confined", &[], &[]);
}

#[test]
fn sigsys_belongs_to_the_program_too() {
    check("own_sigsys", &[], &[]);
}

#[test]
fn an_image_inherits_what_it_would() {
    check("exec", &[], &[]);
}

#[test]
fn legacy_calls_are_served() {
    check("legacy", &[], &[]);
}

#[test]
fn sites_are_rewritten_under_threads_and_signals() {
    let figures = check("hammer", &[], &[by_length(60, 90)]);
    assert!(figures.get(1).is_none_or(|way| way.rewritten > 500), "{figures:?}");
    if std::env::var_os("FOLIOSWAP_LONG").is_some() {
        for _ in 0..30 {
            check("hammer", &[], &[90.to_string()]);
        }
    }
}

//! Words that the kernel reads and writes where it cannot wait for a page: mutexes whose owner
//! ends, or which the kernel hands over, and the word that it clears at a thread's end.

use folioswap_acceptance::MIB;
use folioswap_acceptance::job::{self, Job};
use folioswap_acceptance::programs::c_program;
use std::time::Duration;

fn case(name: &str) {
    case_of("kernel_words", name, &[]);
}

fn case_of(program: &str, name: &str, flags: &[&str]) {
    let program = c_program(program, "", flags);
    let job = Job::new([program.as_os_str(), name.as_ref(), "96".as_ref()]).timeout(Duration::from_secs(120));
    let outcome = job.within(40 * MIB);
    job::report(name, &outcome);
    job::check_swapped(&outcome, 40 * MIB);
    assert_eq!(outcome.text(), format!("ok {name}\n"), "{}", outcome.describe());
}

#[test]
fn a_robust_mutex_tells_of_its_owner_s_end() {
    case("robust");
}

#[test]
fn so_does_one_that_passes_on_priority() {
    case("robust-inheriting");
}

#[test]
fn a_mutex_that_passes_on_priority_is_handed_over() {
    case("inheriting");
}

#[test]
fn the_word_of_a_thread_is_cleared_when_it_ends() {
    case("cleared");
}

#[test]
fn words_of_system_calls_by_number_are_brought_in() {
    case("by-number");
}

#[test]
fn a_lock_by_number_that_passes_on_priority_is_handed_over() {
    case("handed-over-by-number");
}

#[test]
fn the_word_of_a_clone_by_number_is_cleared_when_it_ends() {
    case("cleared-by-number");
}

/// A program's own functions that are made of `syscall` do not come back to themselves.
#[test]
fn functions_of_the_program_may_call_by_number() {
    case_of("own_mmap", "own", &["-rdynamic"]);
}

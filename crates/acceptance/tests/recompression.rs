//! Memory that a program leaves alone becomes smaller in the compressed store, and keeps its
//! contents.

use folioswap_acceptance::job::{self, Engine, Job, Outcome};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, skip};
use std::time::Duration;

/// Runs 80 MiB of text within 56 MiB, of which some 30 MiB are swapped out and left alone for
/// `seconds`.
fn idle(case: &str, seconds: &str, scope: &'static str) -> Outcome {
    let program = c_program("idle", "", &[]);
    let words = [program.as_os_str(), case.as_ref(), "80".as_ref(), seconds.as_ref()];
    let job = Job::new(words).timeout(Duration::from_secs(120));
    let outcome = job.under(Engine::Folioswap { memory: Some(56 * MIB), scope });
    job::report(&format!("idle {case}, scope {scope}"), &outcome);
    outcome.check();
    job::check_swapped(&outcome, 24 * MIB);
    assert_eq!(outcome.text(), format!("ok {case}\n"), "{}", outcome.describe());
    outcome
}

fn figure(outcome: &Outcome, name: &str) -> f64 {
    outcome.figure(name).unwrap_or_else(|| panic!("no {name}: {}", outcome.describe()))
}

/// Every recompressed page spares at least an eighth of its slot; text like this spares a quarter,
/// about 400 bytes.
fn check_recompressed(outcome: &Outcome, pages_min: f64) {
    let (pages, saved) = (figure(outcome, "pages_recompressed"), figure(outcome, "recompress_saved_bytes"));
    println!("{pages} pages recompressed, {saved} bytes saved");
    assert!(pages >= pages_min, "{pages} pages: {}", outcome.describe());
    assert!(saved >= pages * 200.0, "{saved} bytes of {pages} pages: {}", outcome.describe());
}

#[test]
fn a_store_that_is_left_alone_becomes_smaller() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    check_recompressed(&idle("sleeps", "8", "total"), 1000.0);
}

#[test]
fn children_of_a_program_whose_store_is_becoming_smaller_read_what_was_there() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let outcome = idle("forks", "8", "total");
    check_recompressed(&outcome, 100.0);
    assert!(figure(&outcome, "forks") >= 4.0, "{}", outcome.describe());
}

/// In scope resident the store does not count, so nothing is recompressed.
#[test]
fn in_scope_resident_nothing_is_done() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let outcome = idle("sleeps", "4", "resident");
    let tried = ["pages_recompressed", "recompress_incompressible"].map(|name| figure(&outcome, name));
    assert_eq!(tried, [0.0, 0.0], "{}", outcome.describe());
}

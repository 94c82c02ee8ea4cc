//! Programs under an instrument that watches all of their memory run, unmanaged, and are named.

use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::{c_program, which};
use folioswap_acceptance::{MIB, skip};

/// The time for which the program stays, in milliseconds: the census must find it.
const STAY: &str = "700";

/// Runs the program behind `words`, which is not managed.
fn run(words: &[&str], flags: &[&str]) -> Outcome {
    let suffix = format!("-watched{}", flags.join(""));
    let flags: Vec<_> = flags.iter().copied().chain(["-D_FORTIFY_SOURCE=0"]).collect();
    let program = c_program("static", &suffix, &flags);
    let program = program.to_str().expect("text");
    let words = words.iter().copied().chain([program, STAY]);
    let outcome = Job::new(words).option("--stats=all").within(512 * MIB);
    assert_eq!((outcome.code, outcome.text().as_str()), (Some(0), "static ok\n"), "{}", outcome.describe());
    outcome
}

fn check_cmd_is_named(outcome: &Outcome) {
    if job::judging_folioswap() {
        let words = "CMD ran without being managed";
        assert!(outcome.stderr.contains(words), "{}", outcome.describe());
    }
}

#[test]
fn address_sanitizer() {
    check_cmd_is_named(&run(&[], &["-fsanitize=address"]));
}

#[test]
fn address_sanitizer_that_is_linked_in() {
    check_cmd_is_named(&run(&[], &["-fsanitize=address", "-static-libasan"]));
}

/// The command is managed until it becomes the tool, which is a static program.
#[test]
fn valgrind() {
    if which("valgrind").is_none() {
        skip!("valgrind is not installed");
    }
    let outcome = run(&["valgrind", "--quiet", "--error-exitcode=9"], &[]);
    if let Some(stats) = &outcome.stats {
        assert_eq!(stats["unmanaged"]["processes"], 1, "{}", outcome.describe());
    }
}

/// This one is managed.
#[test]
fn thread_sanitizer() {
    let outcome = run(&[], &["-fsanitize=thread"]);
    assert!(!outcome.stderr.contains("without being managed"), "{}", outcome.describe());
}

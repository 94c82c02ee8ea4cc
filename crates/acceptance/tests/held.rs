//! Programs of users without any permission: the kernel reports no faults of system calls, so the
//! system-call gate brings in what each call uses, and holds it (race 79 of `docs/races.md`).
#![cfg(target_arch = "x86_64")]

use folioswap_acceptance::job::{self, Job};
use folioswap_acceptance::others::{FEW, OTHERS};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, cases, only_root};
use std::time::Duration;

const LIMIT: u64 = 40 * MIB;

fn nobody<I: IntoIterator<Item = A>, A: AsRef<std::ffi::OsStr>>(command: I) -> Job {
    Job::new(command).unprivileged().timeout(Duration::from_secs(300))
}

/// Runs a case within a limit, and again with everything taken out all the time.
fn case(name: &str) {
    only_root!("become another user");
    let program = c_program("held", "", &["-pthread"]);
    let command = |mebibytes: &str| [program.as_os_str().to_owned(), name.into(), mebibytes.into()];
    let limited = nobody(command("64")).within(LIMIT);
    let swept = nobody(command("16")).option("--evict-all").within(10 * LIMIT);
    for outcome in [limited, swept] {
        job::report(name, &outcome);
        job::check_swapped(&outcome, 8 * MIB);
        assert_eq!(outcome.text(), format!("ok {name}\n"), "{}", outcome.describe());
        job::check_way(&outcome, "gated-calls");
    }
}

cases! {
    files_are_read_and_written = "files",
    /// One call over more than the limit.
    calls_over_more_than_the_limit_come_to_their_end = "large",
    vectors_and_streams_come_as_a_whole = "vectors",
    calls_that_wait_keep_nothing_but_their_own = "waiting",
    streams_and_datagrams_lose_nothing = "streams",
    results_arrive_whatever_page_they_go_to = "results",
    images_begin_with_words_that_were_away = "images",
    /// What a mapping has grown by is registered before the pager knows.
    mappings_that_grow_and_move_are_known_at_once = "moved",
    /// The kernel would write frames to, and read them from, pages that are away.
    signals_come_on_stacks_that_are_away = "signals",
    threads_begin_and_end_under_signals = "threads",
    pointers_that_lead_nowhere_are_the_kernels_to_refuse = "pointers",
}

/// Calls of threads that begin behind a filter of the program's own are not seen: all comes back
/// before the filter is there, and nothing leaves any more.
#[test]
fn the_memory_of_a_program_that_confines_itself_stays() {
    only_root!("become another user");
    let program = c_program("held", "", &["-pthread"]);
    let outcome = nobody([program.as_os_str(), "confined".as_ref(), "16".as_ref()]).within(80 * MIB);
    job::report("confined", &outcome);
    job::check_swapped(&outcome, 8 * MIB);
    assert_eq!(outcome.text(), "ok confined\n", "{}", outcome.describe());
    let said = outcome.said().join("\n");
    assert!(said.contains("has put a filter before its own system calls"), "{said}");
}

/// Programs of others, with everything taken out all the time: what they print is what they print
/// natively.
#[test]
fn real_programs_print_what_they_do_natively() {
    only_root!("become another user");
    for command in OTHERS.into_iter().take(FEW) {
        let native = nobody(command).unlimited();
        let outcome = nobody(command).option("--evict-all").within(1024 * MIB);
        job::report(command[0], &outcome);
        assert_eq!(outcome.text(), native.text(), "{}", outcome.describe());
        assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
        job::check_way(&outcome, "gated-calls");
    }
}

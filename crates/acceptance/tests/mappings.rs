//! Changes that a program makes to its address space keep their meaning.

use folioswap_acceptance::job::{self, Engine, Job};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, cases};
use std::time::Duration;

fn case(name: &str) {
    case_of("mappings", name);
}

fn case_of(program: &str, name: &str) {
    let program = c_program(program, "", &[]);
    let job =
        Job::new([program.as_os_str(), name.as_ref(), "160".as_ref()]).timeout(Duration::from_secs(900));
    let outcome = job.within(40 * MIB);
    job::report(name, &outcome);
    job::check_swapped(&outcome, 80 * MIB);
    assert_eq!(outcome.text(), format!("ok {name}\n"), "{}", outcome.describe());
}

cases! {
    mremap_grows_moves_and_shrinks = "remap",
    mremap_step_by_step = "remap-steps",
    mremap_that_keeps_the_old_place = "remap-keep",
    madvise_dontneed_gives_zero = "dontneed",
    madvise_free_gives_old_or_zero = "free",
    other_advices_change_nothing = "advices",
    map_fixed_munmap_and_map_again = "replace",
    protection_is_kept = "protect",
    guards_stay_and_leave_zeroes = "guards",
    several_mappings_move_at_once = "move-several",
    holes_are_the_programs = "holes",
    mlock_brings_in_and_keeps = "lock",
    mlockall_locks_what_the_program_has = "lock-all",
    brk_grows_and_shrinks = "heap",
    deep_stacks_of_many_threads = "stacks",
    realloc_of_a_huge_buffer = "grow",
    machine_code_in_memory = "code",
    handlers_on_an_alternate_stack = "signals",
    shared_memory_is_left_alone = "shared",
    a_program_with_a_userfaultfd_of_its_own = "userfault",
    a_userfaultfd_gets_what_is_managed_already = "userfault-late",
    /// A page that was only read before the memory is managed is the zero page: each write to it
    /// makes a page without a missing fault.
    zeroes_that_were_read_are_counted_when_written = "zeroes",
    zeroes_that_a_child_inherits_are_counted_when_written = "zeroes-forked",
}

/// MAP_POPULATE fills a mapping in one system call. Without a countermeasure 199 MiB were resident
/// at a limit of 40.
#[test]
fn private_memory_that_is_filled_at_once_stays_within_the_limit() {
    case_of("populate", "private");
}

/// The same for shared memory, which cannot be swapped: 63 MiB were resident at a limit of 40.
#[test]
fn room_is_made_for_shared_memory_that_is_filled_at_once() {
    case_of("populate", "shared");
}

/// The C library's allocator maps and frees by system calls of its own, which the agent does not
/// see.
#[test]
fn malloc_and_free_by_four_threads() {
    case("churn");
}

/// As in the test before, with the whole compressed store beside the limit, so that pages come back
/// sooner.
#[test]
fn malloc_and_free_by_four_threads_lose_nothing() {
    let program = c_program("mappings", "", &[]);
    let job =
        Job::new([program.as_os_str(), "churn".as_ref(), "160".as_ref()]).timeout(Duration::from_secs(900));
    let outcome = job.under(match job::engine(40 * MIB) {
        Engine::Folioswap { memory, .. } => Engine::Folioswap { memory, scope: "resident" },
        other => other,
    });
    job::report("churn", &outcome);
    outcome.check();
    assert_eq!(outcome.text(), "ok churn\n", "{}", outcome.describe());
}

/// Read-only memory stays resident once it has come back, because UFFDIO_MOVE refuses it. More of
/// it than the limit holds ends the run with one message, not with wrong bytes and not above the
/// limit.
#[test]
fn more_read_only_memory_than_the_limit() {
    ends_for_want_of_memory("protect-too-much");
}

#[test]
fn more_locked_memory_than_the_limit() {
    ends_for_want_of_memory("lock-too-much");
}

fn ends_for_want_of_memory(case: &str) {
    if !job::judging_folioswap() {
        return;
    }
    let program = c_program("mappings", "", &[]);
    let job =
        Job::new([program.as_os_str(), case.as_ref(), "160".as_ref()]).timeout(Duration::from_secs(900));
    let outcome = job.under(job::engine(40 * MIB));
    job::report(case, &outcome);
    job::check_out_of_memory(&outcome);
    outcome.check_limit();
}

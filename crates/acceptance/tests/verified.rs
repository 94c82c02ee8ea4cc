//! Programs of ours that verify every byte: filling, reading again, random touches, counting, first
//! touches.

use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::{MIB, skip};
use std::time::Duration;

const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const COUNTERS: &str = env!("CARGO_BIN_EXE_acc-counters");

fn touch(words: &[&str]) -> Job {
    Job::new(std::iter::once(&TOUCH).chain(words)).timeout(Duration::from_secs(240))
}

/// Runs within `limit` MiB, and asserts that at least `swapped` MiB left.
fn run(name: &str, job: &Job, limit: u64, swapped: u64) -> Outcome {
    let outcome = job.within(limit * MIB);
    job::report(name, &outcome);
    job::check_swapped(&outcome, swapped * MIB);
    outcome
}

fn four_times(kind: &str) {
    let words = ["--size", "256M", "--kind", kind, "--phases", "fill,reread,random,verify,rewrite,verify"];
    let outcome = run(kind, &touch(&words), 64, 192);
    assert!(outcome.text().starts_with("ok 268435456 bytes"), "{}", outcome.describe());
}

#[test]
fn data_that_halves() {
    four_times("2");
}

#[test]
fn data_that_shrinks_to_a_third() {
    four_times("3");
}

/// Compressed RAM is of no use for this data: the file takes it.
#[test]
fn data_that_does_not_compress() {
    four_times("random");
}

#[test]
fn data_of_all_kinds() {
    four_times("mixed");
}

/// The walk goes downwards, over pages of which some are present already: the pages that a fault
/// brings along lie below it.
#[test]
fn a_walk_downwards_by_two_threads() {
    let phases = "islands,fill-down,reread-down,rewrite-down,verify-down";
    let words = ["--size", "192M", "--kind", "2", "--threads", "2", "--phases", phases];
    let outcome = run("downwards", &touch(&words), 48, 144);
    let (pages, faults) =
        (outcome.figure("pswpin").unwrap_or(0.0), outcome.figure("pgmajfault").unwrap_or(0.0));
    assert!(faults > 0.0 && pages > 8.0 * faults, "{pages} pages by {faults} faults");
}

/// This data costs no storage at all, so 16 times the limit is possible without the file.
#[test]
fn same_filled_data() {
    let words = ["--size", "512M", "--kind", "same", "--phases", "fill,random,verify"];
    run("same", &touch(&words), 32, 480);
}

/// The pages are touched for writing, but stay zero.
#[test]
fn zero_data() {
    let words = ["--size", "512M", "--kind", "zero", "--phases", "fill,random,verify"];
    run("zero", &touch(&words), 32, 0);
}

#[test]
fn threads_that_touch_at_random() {
    let words =
        ["--size", "256M", "--threads", "4", "--touches", "60000", "--phases", "fill,random,random,verify"];
    run("4 threads", &touch(&words), 64, 192);
}

/// All pages go to a file: pages that several threads want are read at the same time.
#[test]
fn threads_that_touch_what_is_on_a_file() {
    let words = [
        "--size",
        "160M",
        "--kind",
        "random",
        "--threads",
        "4",
        "--touches",
        "8000",
        "--phases",
        "fill,random,random,verify",
    ];
    let job = touch(&words).option("--swap").option("file:/var/tmp");
    let outcome = run("4 threads, file", &job, 40, 110);
    let Some(overlapped) = outcome.figure("file_reads_overlapped") else { return };
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    if overlapped == 0.0 && matches!(disabled.trim(), "1" | "2") {
        skip!("io_uring is disabled here");
    }
    assert!(overlapped > 1000.0, "{}", outcome.describe());
}

/// Pages that came back whose time away is known, and the share of them that belongs to the working
/// set. Only folioswap counts them.
fn refaults(outcome: &Outcome) -> Option<(f64, f64)> {
    let refaults = outcome.figure("workingset_refault_anon")?;
    Some((refaults, outcome.figure("workingset_activate_anon")? / refaults))
}

/// Data that does not quite fit is a working set: an evicted page is wanted again soon.
#[test]
fn what_is_a_little_larger_than_the_limit_is_a_working_set() {
    let words = ["--size", "68M", "--kind", "2", "--touches", "300000", "--phases", "fill,random"];
    let outcome = run("a working set", &touch(&words), 64, 4);
    let Some((refaults, activated)) = refaults(&outcome) else { return };
    assert!(refaults > 10_000.0 && activated > 0.5, "{refaults}, {activated}: {}", outcome.describe());
}

/// A pass over four times the limit: each page comes back after far more than the limit has gone
/// by.
#[test]
fn a_scan_is_no_working_set() {
    let words = ["--size", "256M", "--kind", "2", "--phases", "fill,reread,verify"];
    let outcome = run("a scan", &touch(&words), 64, 192);
    let Some((refaults, activated)) = refaults(&outcome) else { return };
    assert!(refaults > 90_000.0 && activated < 0.01, "{refaults}, {activated}: {}", outcome.describe());
}

/// The fastest possible demand for memory: one word of each page, by two threads.
#[test]
fn first_touch_by_two_threads() {
    let words = ["--size", "1G", "--kind", "stamp", "--threads", "2", "--phases", "fill,verify"];
    run("first touch, 2 threads", &touch(&words), 256, 768);
}

#[test]
fn first_touch_by_two_threads_with_huge_pages() {
    let words =
        ["--size", "1G", "--kind", "stamp", "--threads", "2", "--huge", "yes", "--phases", "fill,verify"];
    run("first touch, huge pages", &touch(&words), 256, 768);
}

#[test]
fn first_touch_by_two_threads_with_data() {
    let words = ["--size", "1G", "--kind", "2", "--threads", "2", "--huge", "yes", "--phases", "fill,verify"];
    run("first touch, 2:1 data", &touch(&words), 256, 768);
}

#[test]
fn first_touch_by_two_processes() {
    let words = ["--size", "512M", "--kind", "stamp", "--processes", "2", "--phases", "fill,verify"];
    run("first touch, 2 processes", &touch(&words), 256, 768);
}

#[test]
fn first_touch_by_two_processes_with_huge_pages() {
    let words =
        ["--size", "512M", "--kind", "2", "--processes", "2", "--huge", "yes", "--phases", "fill,verify"];
    run("first touch, 2 processes, huge", &touch(&words), 256, 768);
}

fn counters(run_length: &str) -> Outcome {
    let seconds = job::amount(10, 60).to_string();
    let words =
        [COUNTERS, "--size", "256M", "--threads", "8", "--seconds", seconds.as_str(), "--run", run_length];
    let outcome = run("counters", &Job::new(words).timeout(Duration::from_secs(300)), 64, 192);
    assert_eq!(outcome.text(), "ok: no update lost\n");
    outcome
}

/// Folios of 64 KiB that came back whole. Only folioswap counts them.
fn folios_of_64k(outcome: &Outcome) -> Option<u64> {
    outcome.stats.as_ref()?["sizes"]["64kB"]["swpin"].as_u64()
}

/// The pages that the program reads from end to end at its end, in folios of 64 KiB.
const LAST_LOOK: u64 = 4096;

#[test]
fn eight_threads_lose_no_update_in_single_pages() {
    let outcome = counters("1");
    if let Some(folios) = folios_of_64k(&outcome) {
        assert!(folios <= LAST_LOOK + LAST_LOOK / 10, "{folios} folios of 64K: {}", outcome.describe());
    }
}

/// The runs of pages are long enough for folios of 64 KiB to come back: the first pages of a run
/// come in smaller ones.
#[test]
fn eight_threads_lose_no_update_in_units_of_64k() {
    let outcome = counters("64");
    if let Some(folios) = folios_of_64k(&outcome) {
        assert!(folios >= 3 * LAST_LOOK, "{folios} folios of 64K: {}", outcome.describe());
    }
}

/// 160 MiB are not touched again, and 48 MiB are touched at random. With a store of the largest
/// share 40 MiB are left for these, and a third of the touches miss for ever: some 130 000 pages
/// in.
#[test]
fn a_store_that_costs_more_than_it_spares_gives_its_memory_to_the_program() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = "
import mmap, random
r = random.Random(1)
def fill(mib):
    memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, mib << 20, 4096):
        memory[at:at + 1300] = r.randbytes(1300)
    return memory
cold, hot, total = fill(160), fill(48), 0
for _ in range(400000):
    total += hot[r.randrange(48 << 8) * 4096]
print(total, sum(cold[at] for at in range(0, 160 << 20, 4096)))
";
    let job = Job::new(["/usr/bin/python3", "-c", program]).timeout(Duration::from_secs(120));
    let (free, outcome) = (job.unlimited(), job.within(80 * MIB));
    job::report("48 MiB in use beside 160 that are not", &outcome);
    assert_eq!(outcome.text(), free.text());
    let figure = |name| outcome.figure(name).unwrap_or_else(|| panic!("no {name}: {}", outcome.describe()));
    println!("{} pages in, {} from the file", figure("pswpin"), figure("file_pswpin"));
    // The pages that were not touched come back once, at the end.
    let expected = 40960.0 + 40_000.0;
    assert!(figure("pswpin") < expected, "{}", outcome.describe());
}

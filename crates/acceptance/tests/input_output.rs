//! The kernel reads and writes memory that is swapped out.

use folioswap_acceptance::job::{self, Job};
use folioswap_acceptance::{MIB, cases, skip};
use std::time::Duration;

fn case(name: &str) {
    let job = Job::new([env!("CARGO_BIN_EXE_acc-io"), name, "192"]).timeout(Duration::from_secs(900));
    let outcome = job.within(48 * MIB);
    job::report(name, &outcome);
    if outcome.text().contains("not allowed here") {
        skip!("io_uring is not allowed here");
    }
    job::check_swapped(&outcome, 96 * MIB);
    assert_eq!(outcome.text(), format!("ok {name}\n"), "{}", outcome.describe());
}

cases! {
    read_and_write_through_a_file = "file",
    read_and_write_with_o_direct = "direct",
    readv_and_writev = "vectored",
    a_pipe = "pipe",
    a_socket = "socket",
    io_uring = "uring",
    io_uring_with_o_direct = "uring-direct",
    io_uring_with_registered_buffers = "uring-registered",
    io_uring_with_registered_buffers_and_o_direct = "uring-registered-direct",
    another_process_reads_our_memory = "another-process",
    system_calls_with_small_results = "small-calls",
}

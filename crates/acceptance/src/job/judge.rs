//! Checks of whole runs that tests of many programs share.

use super::Job;
use super::engine::Engine;
use super::outcome::Outcome;
use crate::MIB;

/// Prints the figures of one run as a line.
pub fn report(name: &str, outcome: &Outcome) {
    let engine = match &outcome.engine {
        Engine::Nothing => "no limit".to_owned(),
        Engine::Folioswap { memory, .. } => {
            format!("folioswap {:.0}M", memory.unwrap_or(0) as f64 / MIB as f64)
        }
        Engine::Kernel { memory } => format!("kernel {:.0}M", *memory as f64 / MIB as f64),
    };
    println!(
        "{name:32} {engine:16} {:7.2} s wall {:7.2} s cpu  peak {:7.1} MiB",
        outcome.wall.as_secs_f64(),
        outcome.cpu,
        outcome.peak.unwrap_or(0) as f64 / MIB as f64
    );
}

/// Runs a program without a limit, then within each of these parts of its need (2: a half). The
/// output must be the same to the byte, the limit must hold, and nothing may be left behind.
/// Returns the need in bytes.
///
/// # Panics
/// When any of that does not hold.
pub fn same_at_parts_of_need(name: &str, job: &Job, parts: &[u64]) -> u64 {
    let free = job.unlimited();
    free.check();
    report(name, &free);
    let Some(need) = free.peak_rss else {
        panic!("{name}: its need cannot be measured without a memory cgroup");
    };
    for part in parts {
        let limit = need / part;
        let limited = job.within(limit);
        report(name, &limited);
        assert!(
            limited.stdout == free.stdout,
            "{name}: other output at 1/{part} of its need:\n{}\nwithout a limit:\n{}",
            limited.describe(),
            free.describe()
        );
        check_swapped(&limited, need - limit);
    }
    need
}

/// Asserts that a run under folioswap took this way of managing programs, and managed all.
///
/// # Panics
/// When it did not.
pub fn check_way(outcome: &Outcome, way: &str) {
    let stats = outcome.stats.as_ref().expect("statistics");
    assert_eq!(stats["way"], way, "{}", outcome.describe());
    assert_eq!(stats["unmanaged"]["processes"], 0, "{}", outcome.describe());
}

/// Asserts that a run under folioswap swapped at least 80 % of `bytes` out: without swapping, a
/// test of swapping shows nothing.
///
/// # Panics
/// When fewer pages were swapped out.
pub fn check_swapped(outcome: &Outcome, bytes: u64) {
    if let Engine::Folioswap { .. } = outcome.engine {
        let out = outcome.figure("pswpout").unwrap_or_else(|| panic!("no pswpout: {}", outcome.describe()));
        let wanted = (bytes / 4096) as f64 * 0.8;
        assert!(
            out >= wanted,
            "only {out} pages were swapped out of {wanted} at least: {}",
            outcome.describe()
        );
    }
}

/// Asserts that a run ended because its limit cannot be held: status 137, one message that says so,
/// its reason in the statistics, and nothing left behind.
///
/// # Panics
/// When the run ended otherwise.
pub fn check_out_of_memory(outcome: &Outcome) {
    assert_eq!(outcome.code, Some(137), "{}", outcome.describe());
    let end = outcome.stats.as_ref().map_or(&serde_json::Value::Null, |stats| &stats["end"]);
    assert!(end == "out_of_swap" || end == "unmanaged_above_limit", "end {end}: {}", outcome.describe());
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("folioswap: "), "one message: {}", outcome.describe());
    outcome.check_validated();
    outcome.check_clean();
}

//! The cost of the policies of series 1 with the real threads of this machine.

use super::{FILL_8_GIB, Options, POLICIES, Reading, parameters};
use crate::build::{BuildError, Sizes};
use crate::generate;
use crate::policies::{Locks, PolicyName};
use crate::replay::{Device, Medium, Prepared, Replay, ReplayError, Retention, TooManyClusters, replay};
use folioswap_report::{Progress, Show, Table, percent};
use folioswap_slots::DeviceFlags;
use serde::Serialize;

/// A policy's replay of one trace by real threads.
#[derive(Debug, Clone, Serialize)]
pub struct Contention {
    /// The policy.
    pub policy: PolicyName,
    /// Real threads.
    pub threads: u32,
    /// Processor time per operation of the trace, ns: wall time x threads / operations. Waiting for
    /// preceding operations is included.
    pub ns_per_operation: f64,
    /// Clusters isolated and scanned per allocation above order 0.
    pub scanned_per_large: f64,
    /// Lock acquisitions per operation, in a run of its own.
    pub locks_per_operation: f64,
    /// The part of the acquisitions that found the lock taken.
    pub contended: f64,
}

/// Measures the cost of the policies with the real threads of this machine: a trace of the 64 kB
/// build is replayed on a device that becomes 97 % full.
///
/// # Errors
/// [`ContentionError`] for impossible sizes.
pub fn contention(options: &Options, show: Show) -> Result<Vec<Contention>, ContentionError> {
    let trace = generate::in_memory(
        &parameters(options, Sizes::Only64k, Reading::Build),
        DeviceFlags::SYNCHRONOUS,
        1,
    )?;
    let prepared = Prepared::new(&trace, Retention::Never)?;
    drop(trace);
    let pages = Some(prepared.slots_peak * 100 / u64::from(FILL_8_GIB) + 1);
    let devices =
        vec![Device { medium: Medium::Zram, pages, priority: None, synchronous: true, discard: false }];
    let real = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let mut threads = vec![1, real];
    threads.dedup();
    let progress = Progress::new(show, threads.len() * POLICIES.len());
    let mut rows = Vec::new();
    for threads in threads {
        for policy in POLICIES {
            let run = |locks| {
                replay(
                    &prepared,
                    &Replay { policy, devices: devices.clone(), threads, cpus: None, locks, moments: 0 },
                )
            };
            let (timed, counted) = (run(Locks::Uncounted)?, run(Locks::Counted)?);
            let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
            let large = sum(&timed.allocated[1..]) + sum(&timed.fallback[1..]);
            let locks = counted.locks.unwrap_or_default();
            let acquired: u64 = locks.iter().map(|(acquired, _)| acquired).sum();
            let contended: u64 = locks.iter().map(|(_, contended)| contended).sum();
            let operations = timed.operations.max(1) as f64;
            rows.push(Contention {
                policy,
                threads,
                ns_per_operation: timed.wall_ns as f64 * f64::from(threads) / operations,
                scanned_per_large: sum(&timed.clusters_scanned[1..]) / large.max(1.0),
                locks_per_operation: acquired as f64 / operations,
                contended: contended as f64 / acquired.max(1) as f64,
            });
            progress.done(&format!("replay, {policy}, {threads} threads"));
        }
    }
    Ok(rows)
}

/// Why there is no such replay.
#[derive(Debug, thiserror::Error)]
pub enum ContentionError {
    /// The trace cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The trace is too large.
    #[error(transparent)]
    Size(#[from] TooManyClusters),
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

pub(super) fn table(rows: &[Contention]) -> Table {
    let mut table = Table::new(
        "Real threads: a trace of the 64 kB build replayed on a device that becomes 97 % full (one run each)",
        &[
            "policy",
            "threads",
            "ns per operation",
            "scanned per large alloc",
            "locks per operation",
            "found taken",
        ],
    );
    for row in rows {
        table.rows.push(vec![
            row.policy.to_string(),
            row.threads.to_string(),
            format!("{:.0}", row.ns_per_operation),
            format!("{:.3}", row.scanned_per_large),
            format!("{:.2}", row.locks_per_operation),
            percent(row.contended, 1.0),
        ]);
    }
    table
}

//! The workloads: builds as published, and tasks that write memory from start to end.

use super::{Build, Case, ContentionError, Fill, Options, Series};
use crate::build::{BuildParameters, Sizes};
use crate::generate;
use crate::policies::{Locks, PolicyName};
use crate::replay::{Device, Medium, OnNodes, Prepared, Replay, Retention, replay};
use crate::traces::Trace;
use folioswap_slots::DeviceFlags;
use folioswap_trace::{Cause, Details, Event, Header, Record};

/// CPUs of the published machine of series 1 and 2.
const PUBLISHED_CPUS: u32 = 96;
const GIB: u64 = 1 << 18;
/// Tasks of series 4's `usemem -n 31 2G` within 4 GiB.
const TASKS: u32 = 31;
const NODES: u32 = 8;
/// Pages of a reclaim batch.
const BATCH: u64 = 32;

fn build(sizes: Sizes, cpus: u32, tasks_per_job: u32) -> BuildParameters {
    let published = BuildParameters::published(sizes);
    let scaled = |figure: u64| figure * u64::from(cpus) / u64::from(PUBLISHED_CPUS);
    BuildParameters {
        cpus,
        jobs: cpus,
        tasks: cpus * tasks_per_job,
        limit_pages: scaled(published.limit_pages).max(1024),
        source_pages: scaled(published.source_pages),
        ..published
    }
}

/// A build of single pages within three quarters of the memory, as published for series 2.
fn build_of_pages(cpus: u32, tasks_per_job: u32) -> BuildParameters {
    let mut parameters = build(Sizes::Only64k, cpus, tasks_per_job);
    parameters.order_weights = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    parameters.limit_pages = parameters.limit_pages * 3 / 4;
    parameters
}

/// Tasks that write `pages` pages each, of which a share of `resident` stays in memory, and read
/// them again from start to end; then all end.
pub(super) fn usemem(tasks: u32, pages: u64, resident: u64) -> Trace {
    // A task's slots have recorded clusters of their own, so no task waits for another.
    let stride = (pages + 1).next_multiple_of(512) + 512;
    let entry = |task: u32, page: u64| u64::from(task) * stride + page + 1;
    let (mut records, mut details) = (Vec::new(), Vec::new());
    let mut push = |event, cause| {
        records.push(Record { tick: 0, event });
        details.push(Details { cause, ..Details::default() });
    };
    let out = |task: u32, page| Event::Alloc { cpu: task as u16, order: 0, entry: entry(task, page) };
    let back = |task: u32, page| Event::Free { cpu: task as u16, slots: 1, entry: entry(task, page) };
    let gone = pages.saturating_sub(resident);
    for first in (0..gone).step_by(BATCH as usize) {
        for task in 0..tasks {
            (first..(first + BATCH).min(gone)).for_each(|page| push(out(task, page), Cause::Unknown));
        }
    }
    // Reading page n brings it back, and sends out the page that was used longest ago: after the
    // first pass these are the last ones written, then those just read.
    for first in (0..gone).step_by(BATCH as usize) {
        for task in 0..tasks {
            for page in first..(first + BATCH).min(gone) {
                push(back(task, page), Cause::SwapIn);
                push(out(task, (page + gone) % pages), Cause::Unknown);
            }
        }
    }
    for task in 0..tasks {
        for page in 0..pages {
            let left_again = (page + pages - gone) % pages < gone;
            if left_again {
                push(back(task, page), Cause::Exit);
            }
        }
    }
    Trace { header: Header { tick_ns: 1, cpus: tasks }, records, details }
}

/// Series 4's tasks: those published at 96 CPUs, more in proportion.
pub(super) const fn tasks_of(cpus: u32) -> u32 {
    let tasks = TASKS * cpus / PUBLISHED_CPUS;
    if tasks == 0 { 1 } else { tasks }
}

/// A prepared workload with its devices.
pub(super) struct Load {
    pub(super) prepared: Prepared,
    pub(super) devices: Vec<Device>,
    pub(super) nodes: OnNodes,
}

fn device(medium: Medium, pages: Option<u64>) -> Device {
    Device { medium, pages, priority: None, synchronous: medium == Medium::Zram, discard: false }
}

/// Pages of the device of a build.
fn sized(build: &Build, prepared: &Prepared) -> Result<u64, ContentionError> {
    let peak = prepared.slots_peak;
    match build.fill {
        Fill::Peak(percent) => Ok(peak * 100 / u64::from(percent.max(1)) + 1),
        Fill::Failing { order, share } => {
            // The smaller the device, the more fails: to a thousandth of its size.
            let (mut failing, mut fitting) = (peak * 3 / 4, peak * 3 / 2);
            while fitting - failing > peak / 1000 + 1 {
                let pages = failing.midpoint(fitting);
                let fails = share_failing(prepared, device(build.medium, Some(pages)), order)?;
                *if fails > share { &mut failing } else { &mut fitting } = pages;
            }
            Ok(fitting)
        }
    }
}

/// Share of the folios of an order that find no room before the series.
fn share_failing(prepared: &Prepared, device: Device, order: usize) -> Result<f64, ContentionError> {
    let options = Replay {
        policy: PolicyName::ScanAll,
        devices: vec![device],
        threads: 1,
        cpus: None,
        locks: Locks::Uncounted,
        moments: 0,
    };
    let replayed = replay(prepared, &options)?;
    let failed = replayed.fallback[order] as f64;
    Ok(failed / (replayed.allocated[order] as f64 + failed).max(1.0))
}

pub(super) fn load(options: &Options, case: &Case) -> Result<Load, ContentionError> {
    let synchronous = case.build.is_none_or(|build| build.medium == Medium::Zram);
    let (flags, retention) = if synchronous {
        (DeviceFlags::SYNCHRONOUS, Retention::Never)
    } else {
        (DeviceFlags::NONE, Retention::AsRecorded)
    };
    let trace = match (case.series, &case.build) {
        (Series::ClusterScan, Some(of)) => {
            generate::in_memory(&build(of.sizes, case.cpus, options.tasks_per_job), flags, 1)?
        }
        (Series::ClusterScan | Series::SlotCache, _) => {
            // Single pages are sixteen times as many requests.
            let parameters = build_of_pages(case.cpus, options.tasks_per_job.div_ceil(4));
            generate::in_memory(&parameters, flags, 1)?
        }
        (Series::RoundRobin, _) => {
            let scale = u64::from(options.scale.max(1));
            usemem(tasks_of(case.cpus), 2 * GIB / scale, 4 * GIB / u64::from(TASKS) / scale)
        }
    };
    let prepared = Prepared::timed(&trace, retention)?;
    let (devices, nodes) = match (case.series, &case.build) {
        (Series::ClusterScan, Some(build)) => {
            (vec![device(build.medium, Some(sized(build, &prepared)?))], OnNodes::default())
        }
        (Series::ClusterScan | Series::SlotCache, _) => {
            (vec![device(Medium::Zram, None)], OnNodes::default())
        }
        (Series::RoundRobin, _) => {
            // Published: 62 GiB of memory, 64 GiB of devices.
            let pages = prepared.slots_peak * 64 / 62 / 4 + 512 * u64::from(case.cpus);
            let nodes = OnNodes { nodes: NODES, of_devices: vec![0, 1, 2, 3] };
            (vec![device(Medium::Zram, Some(pages)); 4], nodes)
        }
    };
    Ok(Load { prepared, devices, nodes })
}

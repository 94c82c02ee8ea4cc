//! `lab replay`, `lab generate` and `lab fit`: traces are replayed, made and fitted.

use super::{
    LabError,
    arguments::{FitArguments, GenerateArguments, ReplayArguments, SizesArgument},
    print,
};
use crate::error::Error;
use folioswap_lab::{
    build::{BuildParameters, Scale, Sizes, Stopped},
    fit, generate,
    policies::Locks,
    replay::{Device, Medium, Prepared, Replay, Replayed, Retention, replay as run_replay},
    traces::Trace,
};
use folioswap_report::{Progress, Show, Table, percent};
use folioswap_slots::DeviceFlags;
use std::fs;

pub fn replay(arguments: &ReplayArguments) -> Result<i32, Error> {
    let zram =
        Device { medium: Medium::Zram, pages: None, priority: None, synchronous: true, discard: false };
    let devices = if arguments.device.is_empty() { vec![zram] } else { arguments.device.clone() };
    let synchronous = devices.iter().all(|device| device.synchronous);
    let retention = if synchronous { Retention::Never } else { Retention::AsRecorded };
    let prepared = Prepared::read(&arguments.file, retention).map_err(LabError::from)?;
    let options = Replay {
        policy: arguments.policy,
        devices,
        threads: arguments.threads,
        cpus: arguments.cpus,
        locks: if arguments.locks { Locks::Counted } else { Locks::Uncounted },
    };
    let result = run_replay(&prepared, &options).map_err(LabError::from)?;
    if arguments.json {
        return print(&format!("{:#}\n", serde_json::json!(result)));
    }
    print(&text(&result))
}

fn text(result: &Replayed) -> String {
    let mut table = Table::new(
        format!("{} on {} logical CPUs, {} threads", result.policy, result.cpus, result.threads),
        &["order", "allocated", "fallback", "failed", "clusters scanned per allocation"],
    );
    for order in 0..result.allocated.len() {
        let (allocated, fallback) = (result.allocated[order], result.fallback[order]);
        if allocated + fallback == 0 {
            continue;
        }
        let all = (allocated + fallback) as f64;
        table.rows.push(vec![
            format!("{order} ({} kB)", 4 << order),
            allocated.to_string(),
            fallback.to_string(),
            percent(fallback as f64, all),
            format!("{:.3}", result.clusters_scanned[order] as f64 / all),
        ]);
    }
    let mut text = table.text();
    let operations = result.operations.max(1) as f64;
    text += &format!(
        "\n{} operations of the trace in {:.3} s: {:.0} ns each (wall time x threads: {:.0} ns)\n",
        result.operations,
        result.wall_ns as f64 / 1e9,
        result.wall_ns as f64 / operations,
        result.wall_ns as f64 * f64::from(result.threads) / operations
    );
    text += &format!(
        "wear: {} slots ever written, {} clusters discarded\n",
        result.slots_ever_written, result.clusters_discarded
    );
    if let Some(locks) = result.locks {
        for (name, (acquired, contended)) in
            ["cluster", "list", "available list", "logical CPU"].iter().zip(locks)
        {
            text += &format!(
                "locks: {name}: {acquired} acquired ({:.3} per operation), {contended} found taken\n",
                acquired as f64 / operations
            );
        }
    }
    for (index, (pages, used)) in result.devices.iter().enumerate() {
        text += &format!(
            "device {}: {used} of {pages} pages in use at the end ({})\n",
            index + 1,
            percent(*used as f64, *pages as f64)
        );
    }
    if result.odd != Default::default() {
        text += &format!(
            "the trace frees {} slots that it did not allocate, and allocates {} that it did not free (set right)\n",
            result.odd.unknown_slots, result.odd.taken_twice
        );
    }
    text
}

pub fn generate(arguments: &GenerateArguments) -> Result<i32, Error> {
    let mut parameters = match &arguments.parameters {
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|source| LabError::ParametersFile { path: path.clone(), source })?;
            serde_json::from_str(&text)
                .map_err(|source| LabError::Parameters { path: path.clone(), source })?
        }
        None => {
            let sizes = match arguments.sizes {
                SizesArgument::Only64k => Sizes::Only64k,
                SizesArgument::All => Sizes::All,
            };
            BuildParameters::published(sizes).scaled(Scale(arguments.scale))
        }
    };
    if let Some(tasks) = arguments.tasks {
        parameters.tasks = tasks;
    }
    let Some(file) = arguments.file.as_ref().filter(|_| !arguments.print_parameters) else {
        return print(&format!("{:#}\n", serde_json::json!(parameters)));
    };
    let flags = if arguments.asynchronous { DeviceFlags::NONE } else { DeviceFlags::SYNCHRONOUS };
    let progress = Progress::new(Show::Yes, parameters.tasks as usize);
    let mut before = 0;
    let report = |ended: u32| {
        progress.advance(ended - before);
        before = ended;
        Stopped::No
    };
    let records =
        generate::to_file(&parameters, flags, arguments.seed, file, report).map_err(LabError::from)?;
    print(&format!("{}: {records} records\n", file.display()))
}

pub fn fit(arguments: &FitArguments) -> Result<i32, Error> {
    let trace = Trace::read(&arguments.file).map_err(LabError::from)?;
    print(&format!("{:#}\n", serde_json::json!(fit::fit(&trace))))
}

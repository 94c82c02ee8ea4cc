//! `lab replay`, `lab generate` and `lab fit`: traces are replayed, made and fitted.

use super::{
    LabError,
    arguments::{
        ExportArguments, FitArguments, GenerateArguments, ImportArguments, ReplayArguments, SizesArgument,
    },
    over_time, print,
};
use crate::error::Error;
use folioswap_lab::{
    build::{BuildParameters, Scale, Sizes, Stopped},
    fit, generate,
    policies::Locks,
    replay::{Device, Medium, Prepared, Replay, ReplayError, Replayed, Retention, replay as run_replay},
    text,
    traces::Trace,
};
use folioswap_report::{Progress, Show, Table, percent};
use folioswap_slots::DeviceFlags;
use std::{
    fs,
    io::{self, BufRead, BufReader, BufWriter},
    path::Path,
};

pub fn replay(arguments: &ReplayArguments) -> Result<i32, Error> {
    let zram =
        Device { medium: Medium::Zram, pages: None, priority: None, synchronous: true, discard: false };
    let devices = if arguments.device.is_empty() { vec![zram] } else { arguments.device.clone() };
    let synchronous = devices.iter().all(|device| device.synchronous);
    let retention = if synchronous { Retention::Never } else { Retention::AsRecorded };
    let prepared = Prepared::read(&arguments.file, retention).map_err(LabError::from)?;
    if let Some(format) = &arguments.over_time {
        if arguments.threads > 1 {
            return Err(LabError::from(ReplayError::MomentsOfThreads).into());
        }
        over_time::make(format)?;
    }
    let mut results = Vec::new();
    for &policy in &arguments.policy {
        let options = Replay {
            policy,
            devices: devices.clone(),
            threads: arguments.threads,
            cpus: arguments.cpus,
            locks: if arguments.locks { Locks::Counted } else { Locks::Uncounted },
            moments: if arguments.over_time.is_some() { arguments.looks } else { 0 },
        };
        results.push(run_replay(&prepared, &options).map_err(LabError::from)?);
    }
    if let Some(format) = &arguments.over_time {
        over_time::write(format, &arguments.file, &results)?;
        results.iter_mut().for_each(|result| result.moments = None);
    }
    match (arguments.json, &results[..]) {
        (true, [only]) => print(&format!("{:#}\n", serde_json::json!(only))),
        (true, all) => print(&format!("{:#}\n", serde_json::json!(all))),
        (false, [only]) => print(&text(only)),
        (false, all) => print(&compared(all)),
    }
}

/// A table with a column for each policy.
fn compared(results: &[Replayed]) -> String {
    let first = &results[0];
    let mut head = vec!["".to_owned()];
    head.extend(results.iter().map(|result| result.policy.to_string()));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let title = format!(
        "{} operations of the trace on {} logical CPUs, {} threads",
        first.operations, first.cpus, first.threads
    );
    let mut table = Table::new(title, &head);
    let mut row = |name: String, of: &dyn Fn(&Replayed) -> String| {
        let cells = results.iter().map(of);
        table.rows.push(std::iter::once(name).chain(cells).collect());
    };
    for order in 0..first.allocated.len() {
        let all = |result: &Replayed| result.allocated[order] + result.fallback[order];
        if results.iter().all(|result| all(result) == 0) {
            continue;
        }
        row(format!("order {order} ({} kB): allocated", 4 << order), &|result| {
            result.allocated[order].to_string()
        });
        row(format!("order {order}: failed"), &|result| {
            let failed = result.fallback[order];
            format!("{failed} ({})", percent(failed as f64, all(result) as f64))
        });
        row(format!("order {order}: clusters scanned each"), &|result| {
            format!("{:.3}", result.clusters_scanned[order] as f64 / all(result).max(1) as f64)
        });
    }
    if results.iter().all(|result| result.locks.is_some()) {
        for (kind, name) in LOCKS.iter().enumerate() {
            row(format!("{name} locks per operation"), &|result| {
                let acquired = result.locks.map_or(0, |locks| locks[kind].0);
                format!("{:.3}", acquired as f64 / result.operations.max(1) as f64)
            });
        }
    }
    row("ns per operation".to_owned(), &|result| {
        let total = result.wall_ns as f64 * f64::from(result.threads);
        format!("{:.0}", total / result.operations.max(1) as f64)
    });
    let mut text = table.text();
    text += &corrections(first);
    text
}

const LOCKS: [&str; 4] = ["cluster", "list", "available list", "logical CPU"];

/// What was corrected in the trace, if anything was.
fn corrections(result: &Replayed) -> String {
    if result.odd == Default::default() {
        return String::new();
    }
    format!(
        "the trace frees {} slots that it did not allocate, and allocates {} that it did not free (set right)\n",
        result.odd.unknown_slots, result.odd.taken_twice
    )
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
        for (name, (acquired, contended)) in LOCKS.iter().zip(locks) {
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
    text += &corrections(result);
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

pub fn import(arguments: &ImportArguments) -> Result<i32, Error> {
    let path = &arguments.text;
    let input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let opened = fs::File::open(path);
        Box::new(BufReader::new(opened.map_err(|source| LabError::File { path: path.clone(), source })?))
    };
    let read = text::read(input);
    let mut trace = read.map_err(|source| LabError::Text { path: path.clone(), source })?;
    if let Some(group) = arguments.group {
        trace = trace.of_group(group);
    }
    let file = &arguments.file;
    trace.write(file).map_err(|source| LabError::File { path: file.clone(), source })?;
    print(&format!("{}: {} records on {} CPUs\n", file.display(), trace.records.len(), trace.header.cpus))
}

pub fn export(arguments: &ExportArguments) -> Result<i32, Error> {
    let trace = Trace::read(&arguments.file).map_err(LabError::from)?;
    let mut output = BufWriter::new(io::stdout().lock());
    text::write(&trace, &mut output).and_then(|()| io::Write::flush(&mut output)).map_err(Error::Output)?;
    Ok(0)
}

pub fn fit(arguments: &FitArguments) -> Result<i32, Error> {
    let trace = Trace::read(&arguments.file).map_err(LabError::from)?;
    print(&format!("{:#}\n", serde_json::json!(fit::fit(&trace))))
}

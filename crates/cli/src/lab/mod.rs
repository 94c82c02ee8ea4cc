//! `folioswap lab`: runs experiments, and makes, replays and fits traces.

pub mod arguments;
mod over_time;
mod simulated;
pub mod simulated_arguments;
mod traces;

use crate::error::Error;
use arguments::{
    ClusterScanArguments, LabArguments, LabCommand, OutputArguments, PeerArgument, RoundRobinArguments,
    ShmemSwapinArguments, SlotCacheArguments, ThpSwapoutArguments, TiersArguments,
};
use folioswap_lab::{
    build::Scale,
    experiments::{cluster_scan, on_trace, round_robin, shmem_swapin, slot_cache, thp_swapout, tiers},
    peer,
    policies::PolicyName,
    traces::Trace,
};
use folioswap_report::{Report, Show};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// Why a command of the lab was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The workload or the allocator refused its sizes.
    #[error(transparent)]
    Build(#[from] folioswap_lab::build::BuildError),
    /// The replay with real threads in the experiment of series 1 failed.
    #[error(transparent)]
    Contention(#[from] cluster_scan::ContentionError),
    /// The experiment of series 2 failed.
    #[error(transparent)]
    SlotCache(#[from] slot_cache::SlotCacheError),
    /// The experiment of series 3 failed.
    #[error(transparent)]
    ThpSwapout(#[from] thp_swapout::ThpSwapoutError),
    /// The experiment of series 4 failed.
    #[error(transparent)]
    RoundRobin(#[from] round_robin::RoundRobinError),
    /// The experiment of series 5 failed.
    #[error(transparent)]
    ShmemSwapin(#[from] shmem_swapin::ShmemSwapinError),
    /// The experiment on tiers failed.
    #[error(transparent)]
    Tiers(#[from] tiers::TiersError),
    /// The simulation failed.
    #[error(transparent)]
    Simulation(#[from] folioswap_lab::experiments::contention::ContentionError),
    /// There are no costs.
    #[error(transparent)]
    Costs(#[from] folioswap_lab::events::CostsError),
    /// Nothing was measured.
    #[error(transparent)]
    Calibrate(#[from] folioswap_lab::events::CalibrateError),
    /// The peer, the running kernel, failed.
    #[error(transparent)]
    Peer(#[from] peer::PeerError),
    /// An experiment on a trace failed.
    #[error(transparent)]
    OnTrace(#[from] on_trace::OnTraceError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] folioswap_lab::traces::TraceError),
    /// The trace cannot be prepared for a replay.
    #[error(transparent)]
    Prepare(#[from] folioswap_lab::replay::PrepareError),
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] folioswap_lab::replay::ReplayError),
    /// The text is none of a trace.
    #[error("{}: {source}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: folioswap_lab::text::TextError,
    },
    /// A file cannot be opened or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The generator failed.
    #[error(transparent)]
    Generate(#[from] folioswap_lab::generate::GenerateError),
    /// The file of parameters cannot be read.
    #[error("--parameters {}: {source}", path.display())]
    ParametersFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file holds no valid parameters.
    #[error("--parameters {}: {source}", path.display())]
    Parameters {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// The picture cannot be written.
    #[error("--plot {}: {source}", path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: folioswap_report::PlotError,
    },
}

/// The command.
///
/// # Errors
/// [`LabError`], or the output cannot be written.
pub fn lab(arguments: &LabArguments) -> Result<i32, Error> {
    match &arguments.command {
        LabCommand::ClusterScan(arguments) => run_cluster_scan(arguments),
        LabCommand::SlotCache(arguments) => run_slot_cache(arguments),
        LabCommand::ThpSwapout(arguments) => run_thp_swapout(arguments),
        LabCommand::RoundRobin(arguments) => run_round_robin(arguments),
        LabCommand::ShmemSwapin(arguments) => run_shmem_swapin(arguments),
        LabCommand::Tiers(arguments) => run_tiers(arguments),
        LabCommand::Hog(arguments) => {
            peer::hog(arguments.bytes, &arguments.group).map_err(Error::system("entering the cgroup"))?;
            Ok(0)
        }
        LabCommand::Contention(arguments) => simulated::contention(arguments),
        LabCommand::Calibrate(arguments) => simulated::calibrate(arguments),
        LabCommand::Replay(arguments) => traces::replay(arguments),
        LabCommand::Generate(arguments) => traces::generate(arguments),
        LabCommand::Import(arguments) => traces::import(arguments),
        LabCommand::Export(arguments) => traces::export(arguments),
        LabCommand::Fit(arguments) => traces::fit(arguments),
        LabCommand::Policies => {
            let lines =
                PolicyName::ALL.iter().map(|policy| format!("{:14} {}\n", policy.name(), policy.help()));
            let combined = "Parts of series 1 combine with +, the rest is then as in Linux 6.19, as in scan-one+free-first:\n\
                scan-one | scan-all: fragment clusters that an allocation above order 0 scans\n\
                nonfull-first | free-first | nonfull-always-first: the first list (nonfull-first: free first on devices that discard)\n\
                reclaim-late | reclaim-early: when full clusters are searched: after both lists, or after the free one\n\
                An order of lists of your own: examples/own-list-order\n";
            print(&(lines.collect::<String>() + "\n" + combined))
        }
    }
}

fn run_cluster_scan(arguments: &ClusterScanArguments) -> Result<i32, Error> {
    let defaults =
        if arguments.output.quick { cluster_scan::Options::quick() } else { cluster_scan::Options::full() };
    let options = cluster_scan::Options {
        scale: arguments.scale.map_or(defaults.scale, Scale),
        tasks_per_job: arguments.tasks_per_job.unwrap_or(defaults.tasks_per_job),
        fills: arguments.fill.clone().unwrap_or(defaults.fills),
        runs: arguments.runs.unwrap_or(defaults.runs),
    };
    if let Some(file) = &arguments.trace {
        let report = on(file, |named| on_trace::cluster_scan(named, &options.fills, Show::Yes))?;
        return show(&report, &arguments.output);
    }
    let outcomes = cluster_scan::run(&options, Show::Yes).map_err(LabError::from)?;
    let contention = cluster_scan::contention(&options, Show::Yes).map_err(LabError::from)?;
    show(&cluster_scan::report(&options, &outcomes, &contention), &arguments.output)
}

fn run_slot_cache(arguments: &SlotCacheArguments) -> Result<i32, Error> {
    let defaults =
        if arguments.output.quick { slot_cache::Options::quick() } else { slot_cache::Options::full() };
    let options = slot_cache::Options {
        pairs: arguments.pairs.unwrap_or(defaults.pairs),
        threads: arguments.threads.unwrap_or(defaults.threads),
        margin: f64::from(arguments.margin) / 100.0,
        ..defaults
    };
    if let Some(file) = &arguments.trace {
        let report = on(file, |named| {
            on_trace::slot_cache(named, options.pairs, options.threads, options.margin, Show::Yes)
        })?;
        return show(&report, &arguments.output);
    }
    let outcomes = slot_cache::run(&options, &slot_cache::CASES, Show::Yes).map_err(LabError::from)?;
    show(&slot_cache::report(&options, &outcomes), &arguments.output)
}

fn run_thp_swapout(arguments: &ThpSwapoutArguments) -> Result<i32, Error> {
    let defaults =
        if arguments.output.quick { thp_swapout::Options::quick() } else { thp_swapout::Options::full() };
    let options = thp_swapout::Options {
        rounds: arguments.rounds.unwrap_or(defaults.rounds),
        threads: arguments.threads.unwrap_or(defaults.threads),
        task_mib: arguments.task_mib.unwrap_or(defaults.task_mib),
        margin: f64::from(arguments.margin) / 100.0,
    };
    let outcomes = thp_swapout::run(&options, &thp_swapout::CASES, Show::Yes).map_err(LabError::from)?;
    show(&thp_swapout::report(&options, &outcomes), &arguments.output)
}

fn run_round_robin(arguments: &RoundRobinArguments) -> Result<i32, Error> {
    if let Some(file) = &arguments.trace {
        return show(&on(file, |named| on_trace::round_robin(named, Show::Yes))?, &arguments.output);
    }
    let quick = arguments.output.quick;
    let defaults = if quick { round_robin::Options::quick() } else { round_robin::Options::full() };
    let options = round_robin::Options { runs: arguments.runs, ..defaults };
    // The peer comes first, because it refuses at once where it cannot work.
    let peer = match arguments.peer {
        Some(PeerArgument::Kernel) => {
            let program = std::env::current_exe().map_err(Error::system("finding our own program"))?;
            let load = if quick { peer::Load::QUICK } else { peer::Load::FULL };
            Some(peer::four_zrams(load, &program).map_err(LabError::from)?)
        }
        None => None,
    };
    let outcomes = round_robin::run(&options, Show::Yes).map_err(LabError::from)?;
    show(&round_robin::report(&options, &outcomes, peer.as_ref()), &arguments.output)
}

fn run_shmem_swapin(arguments: &ShmemSwapinArguments) -> Result<i32, Error> {
    let defaults =
        if arguments.output.quick { shmem_swapin::Options::quick() } else { shmem_swapin::Options::full() };
    let options = shmem_swapin::Options {
        mib: arguments.mib.map_or(defaults.mib, |mib| u64::from(mib & !1)),
        rounds: arguments.rounds.unwrap_or(defaults.rounds),
    };
    let outcomes = shmem_swapin::run(&options, Show::Yes).map_err(LabError::from)?;
    show(&shmem_swapin::report(&options, &outcomes), &arguments.output)
}

fn run_tiers(arguments: &TiersArguments) -> Result<i32, Error> {
    let defaults = if arguments.output.quick { tiers::Options::quick() } else { tiers::Options::full() };
    let options = tiers::Options { runs: arguments.runs.unwrap_or(defaults.runs), ..defaults };
    let outcomes = tiers::run(&options, &tiers::cases(), Show::Yes).map_err(LabError::from)?;
    show(&tiers::report(&options, &outcomes), &arguments.output)
}

/// Runs an experiment on the trace in a file.
fn on(
    file: &Path,
    experiment: impl FnOnce(&on_trace::Named<'_>) -> Result<Report, on_trace::OnTraceError>,
) -> Result<Report, LabError> {
    let trace = Trace::read(file)?;
    let name = file.file_name().unwrap_or(file.as_os_str()).display().to_string();
    Ok(experiment(&on_trace::Named { name, trace: &trace })?)
}

/// Prints tables or JSON, and draws the picture if one is wanted.
pub(crate) fn show(report: &Report, output: &OutputArguments) -> Result<i32, Error> {
    if let Some(path) = &output.plot {
        report.plot(path).map_err(|source| LabError::Plot { path: path.clone(), source })?;
    }
    print(&if output.json { report.json() + "\n" } else { report.text() })
}

fn print(text: &str) -> Result<i32, Error> {
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Output)?;
    Ok(0)
}

//! `lab contention` and `lab calibrate`: simulated time, and the costs that it takes.

use super::{
    LabError, print, show,
    simulated_arguments::{CalibrateArguments, ContentionArguments},
};
use crate::error::Error;
use folioswap_lab::{
    events::{self, CostsFile},
    experiments::contention::{self as experiment, Series},
};
use folioswap_report::Show;

pub fn contention(arguments: &ContentionArguments) -> Result<i32, Error> {
    let quick = arguments.output.quick;
    let defaults = if quick { experiment::Options::quick() } else { experiment::Options::full() };
    let mut series: Vec<Series> =
        arguments.series.iter().filter_map(|number| Series::by_number(*number)).collect();
    series.dedup();
    let options = experiment::Options {
        series,
        cpus: arguments.cpus.clone().unwrap_or(defaults.cpus),
        tasks_per_job: arguments.tasks_per_job.unwrap_or(defaults.tasks_per_job),
        scale: arguments.scale.unwrap_or(defaults.scale),
        fills: arguments.fill.clone().unwrap_or(defaults.fills),
    };
    let costs = match &arguments.costs {
        Some(file) => CostsFile::read(file).map_err(LabError::from)?,
        None => CostsFile::kept(),
    };
    let outcomes = experiment::run(&options, &costs.costs, Show::Yes).map_err(LabError::from)?;
    show(&experiment::report(&options, &costs, &outcomes), &arguments.output)
}

pub fn calibrate(arguments: &CalibrateArguments) -> Result<i32, Error> {
    let costs = events::calibrate().map_err(LabError::from)?;
    match &arguments.file {
        Some(path) => {
            costs.write(path).map_err(LabError::from)?;
            print(&format!("{}: {}\n", path.display(), costs.machine))
        }
        None => print(&costs.json()),
    }
}

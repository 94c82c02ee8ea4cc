//! Makes traces of a build, as they would be recorded where swap space never lacks.

use crate::build::{BuildError, BuildParameters, Stopped, SwapDevice, run_build};
use crate::traces::{Collector, Trace, Writer};
use folioswap_slots::{Current, DeviceFlags};
use folioswap_trace::Header;
use std::path::{Path, PathBuf};

/// Length of a tick, in which each job makes one step: 0.1 ms, so that a task of median size takes
/// some seconds, as a compiler does.
const TICK_NS: u32 = 100_000;

/// Why no trace was made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The build failed.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

fn device(parameters: &BuildParameters, flags: DeviceFlags) -> SwapDevice {
    SwapDevice { pages: parameters.pages_max(), flags }
}

fn header(parameters: &BuildParameters) -> Header {
    Header { tick_ns: TICK_NS, cpus: parameters.cpus }
}

/// Writes a trace into a file and returns the number of records. The same parameters, flags and
/// seed give the same file.
///
/// # Errors
/// [`GenerateError`].
pub fn to_file(
    parameters: &BuildParameters,
    flags: DeviceFlags,
    seed: u64,
    path: &Path,
    report: impl FnMut(u32) -> Stopped,
) -> Result<u64, GenerateError> {
    parameters.check().map_err(BuildError::from)?;
    let file = |source| GenerateError::File { path: path.to_owned(), source };
    let writer = Writer::create(path, &header(parameters), u64::from(parameters.jobs)).map_err(file)?;
    let outcome = run_build::<Current, _>(parameters, device(parameters, flags), seed, writer, report)?;
    outcome.recorder.finish().map_err(file)
}

/// Makes the same trace in memory.
///
/// # Errors
/// [`BuildError`].
pub fn in_memory(parameters: &BuildParameters, flags: DeviceFlags, seed: u64) -> Result<Trace, BuildError> {
    parameters.check()?;
    let collector =
        Collector { records: Vec::new(), details: Vec::new(), steps_per_tick: u64::from(parameters.jobs) };
    let device = device(parameters, flags);
    let outcome = run_build::<Current, _>(parameters, device, seed, collector, |_| Stopped::No)?;
    let Collector { records, details, .. } = outcome.recorder;
    Ok(Trace { header: header(parameters), records, details })
}

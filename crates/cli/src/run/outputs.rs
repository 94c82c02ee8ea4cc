//! The files that `run` writes when CMD ends, opened before anything is started.

use super::arguments::RunArguments;
use crate::error::Error;
use folioswap_supervisor::report::{Printed, outputs::Outputs};
use std::{fs::File, io, os::fd::AsFd, path::Path};

/// The name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// Opens what the arguments name.
///
/// # Errors
/// A file cannot be made, or two options name standard output.
pub fn open(arguments: &RunArguments, printed: Printed) -> Result<Outputs, Error> {
    let all = [
        ("--stats-json", &arguments.stats_json),
        ("--report", &arguments.report),
        ("--timeline", &arguments.timeline),
    ];
    let mut on_output = all.iter().filter(|(_, path)| path.as_deref() == Some(Path::new(STANDARD_OUTPUT)));
    if let (Some((first, _)), Some((second, _))) = (on_output.next(), on_output.next()) {
        return Err(Error::TwoOnOutput { first, second });
    }
    let [json, report, timeline] = all.map(|(option, path)| make(option, path.as_deref()));
    let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
    Ok(Outputs { printed, title: words.join(" "), json: json?, report: report?, timeline: timeline? })
}

fn make(option: &'static str, path: Option<&Path>) -> Result<Option<File>, Error> {
    let Some(path) = path else { return Ok(None) };
    let opened = if path == Path::new(STANDARD_OUTPUT) {
        io::stdout().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::create(path)
    };
    opened.map(Some).map_err(|source| Error::OutputFile { option, path: path.to_owned(), source })
}

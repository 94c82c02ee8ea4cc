//! `lab replay --over-time`: the allocator over the course of replays: a picture, a table or JSON.

use super::LabError;
use folioswap_lab::replay::{Lists, Moment, Moments, Replayed};
use folioswap_report::{HeatMap, HeatMaps};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// A file, and what it is to be by its name.
#[derive(Clone, Debug)]
pub enum Format {
    Picture(PathBuf),
    Table(PathBuf),
    Json(PathBuf),
}

impl Format {
    /// Reads it off the name of a file.
    pub fn of_file(text: &str) -> Result<Format, String> {
        let path = PathBuf::from(text);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Format::Picture(path)),
            Some("csv") => Ok(Format::Table(path)),
            Some("json") => Ok(Format::Json(path)),
            _ => Err("the name must end in .svg, .csv or .json".to_owned()),
        }
    }

    fn path(&self) -> &Path {
        let (Format::Picture(path) | Format::Table(path) | Format::Json(path)) = self;
        path
    }
}

/// Makes the file, so that nobody waits for replays that cannot be written down.
///
/// # Errors
/// [`LabError::File`].
pub fn make(format: &Format) -> Result<(), LabError> {
    let made = fs::File::create(format.path());
    made.map(|_| ()).map_err(|source| LabError::File { path: format.path().to_owned(), source })
}

/// Writes the moments of these replays, each with its policy.
///
/// # Errors
/// [`LabError::File`].
pub fn write(format: &Format, trace: &Path, results: &[Replayed]) -> Result<(), LabError> {
    let written = match format {
        Format::Picture(path) => picture(trace, results).plot(path).map_err(std::io::Error::other),
        Format::Table(path) => fs::write(path, table(results)),
        Format::Json(path) => fs::write(path, json(results)),
    };
    written.map_err(|source| LabError::File { path: format.path().to_owned(), source })
}

/// The replays of which moments were taken.
fn watched(results: &[Replayed]) -> impl Iterator<Item = (&Replayed, &Moments)> {
    results.iter().filter_map(|result| Some((result, result.moments.as_ref()?)))
}

fn table(results: &[Replayed]) -> String {
    let mut text = format!("policy,{}\n", Moments::head().join(","));
    for (result, moments) in watched(results) {
        for row in moments.rows() {
            write!(text, "{}", result.policy).expect("a String takes everything");
            row.iter().for_each(|number| write!(text, ",{number}").expect("a String takes everything"));
            text.push('\n');
        }
    }
    text
}

fn json(results: &[Replayed]) -> String {
    let of = |(result, moments): (&Replayed, &Moments)| serde_json::json!({ "policy": result.policy, "devices": result.devices, "over_time": moments });
    format!("{:#}\n", serde_json::Value::from_iter(watched(results).map(of)))
}

fn picture(trace: &Path, results: &[Replayed]) -> HeatMaps {
    let operations = results.first().map_or(0, |result| result.operations);
    let name = trace.file_name().unwrap_or(trace.as_os_str()).display();
    HeatMaps {
        title: format!("{name}: the devices over {operations} operations"),
        notes: vec![
            "Above, for each policy, how much of each part of the devices is used at the end of each span of operations, from the first cluster at the top to the last. Below, the clusters by list: nonfull and frag are partly used; those that logical CPUs allocate from are on no list.".to_owned(),
        ],
        time: ("operations".to_owned(), operations as f64),
        maps: watched(results).map(|(result, moments)| map(result, moments)).collect(),
    }
}

fn map(result: &Replayed, moments: &Moments) -> HeatMap {
    let all = &moments.moments;
    let sum = |of: fn(&Moment) -> &[u64]| all.iter().flat_map(of).sum::<u64>();
    // Large folios only: a single page fails where nothing is left.
    let (large, failed) = (sum(|moment| &moment.allocated[1..]), sum(|moment| &moment.fallback[1..]));
    let share = 100.0 * failed as f64 / (large + failed).max(1) as f64;
    let band = |name: &str, of: fn(&Lists) -> u32| {
        (name.to_owned(), all.iter().map(|moment| f64::from(of(&moment.lists))).collect())
    };
    HeatMap {
        title: format!(
            "{}: {failed} of {} large folios found no room ({share:.2} %), {} slots ever written, {} clusters discarded",
            result.policy,
            large + failed,
            result.slots_ever_written,
            result.clusters_discarded
        ),
        cells: all.iter().skip(1).map(|moment| moment.used_percent.clone()).collect(),
        cells_name: format!("{} clusters", moments.clusters),
        bands: vec![
            band("never used", |lists| lists.never_used),
            band("free, or to discard", |lists| lists.free + lists.discard),
            band("nonfull", |lists| lists.nonfull),
            band("frag", |lists| lists.frag),
            band("full", |lists| lists.full),
        ],
        bands_name: "clusters".to_owned(),
        bands_most: f64::from(moments.clusters),
    }
}

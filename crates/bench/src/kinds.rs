//! One program with several kinds of data, each compared by itself: the runs, and the tables that
//! the programs share.

use crate::comparison::{Column, Contestant, Host, Terms};
use crate::data::Kind;
use crate::engine::RunError;
use crate::tables::{MIB, cell, engines, failed, pages};
use folioswap_report::Table;

/// The engines' columns for each kind of data.
pub(crate) type OfKinds = Vec<(Kind, Vec<Column>)>;

/// Runs `worker`, which needs at most `need` bytes, with each kind of data. Also returns why the
/// kernel is absent, if it is. See [`Terms::run`].
///
/// # Errors
/// As [`Terms::run`].
pub(crate) fn compare(
    terms: &Terms,
    host: Host<'_>,
    worker: &'static str,
    need: u64,
    kinds: &[Kind],
    arguments: impl Fn(Kind) -> Vec<String>,
) -> Result<(OfKinds, Option<String>), RunError> {
    let contestant = |&kind: &Kind| Contestant {
        worker,
        arguments: arguments(kind),
        name: format!("{} data", kind.title()),
    };
    let programs: Vec<_> = kinds.iter().map(contestant).collect();
    let (columns, absent) = terms.run(host, need, &programs)?;
    Ok((kinds.iter().copied().zip(columns).collect(), absent))
}

/// All figures of all runs as JSON.
pub(crate) fn results(all: &[(Kind, Vec<Column>)]) -> Vec<serde_json::Value> {
    let result = |(kind, columns): &(Kind, Vec<Column>)| serde_json::json!({ "kind": kind.name(), "engines": engines(columns) });
    all.iter().map(result).collect()
}

/// A column of one program's table only: its head, and its cell for an engine.
pub(crate) type Further = (&'static str, fn(&Column) -> String);

/// The table of memory and pages over the whole runs.
pub(crate) fn whole(kind: Kind, columns: &[Column], further: &[Further]) -> Table {
    let mut head = vec!["", "seconds", "peak MiB", "pages out", "pages in"];
    head.extend(further.iter().map(|(name, _)| name));
    head.push("failed");
    let mut table = Table::new(format!("The whole run, {} data", kind.title()), &head);
    for column in columns {
        let [out, back] = pages(column);
        let mut row = vec![
            column.engine.to_string(),
            cell(column, 2, |run| Some(run.wall)),
            cell(column, 0, |run| run.peak.map(|peak| peak as f64 / MIB)),
            out,
            back,
        ];
        row.extend(further.iter().map(|(_, cell)| cell(column)));
        row.push(failed(column));
        table.rows.push(row);
    }
    table
}

//! One program with several kinds of data, each a comparison of its own: running it, and what the tables have in common.

use crate::comparison::{Column, Contestant, Host, Terms};
use crate::data::Kind;
use crate::engine::RunError;
use crate::tables::{MIB, cell, engines, failed, pages};
use folioswap_report::Table;

/// The engines' columns for each kind of data.
pub(crate) type OfKinds = Vec<(Kind, Vec<Column>)>;

/// Lets the `worker`, which needs `need` bytes at most, run with each kind of data; why the kernel is absent, if it is. See [`Terms::run`].
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

/// Every figure of every run.
pub(crate) fn results(all: &[(Kind, Vec<Column>)]) -> Vec<serde_json::Value> {
    let result = |(kind, columns): &(Kind, Vec<Column>)| serde_json::json!({ "kind": kind.name(), "engines": engines(columns) });
    all.iter().map(result).collect()
}

/// A column that only one program's table has: its head, and its cell for an engine.
pub(crate) type Further = (&'static str, fn(&Column) -> String);

/// Memory and pages of the whole runs.
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

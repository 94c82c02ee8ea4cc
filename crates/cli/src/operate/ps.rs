//! `folioswap ps`: the groups and mounts that there are.

use super::{
    arguments::PsArguments,
    mounts::{self, MountSnapshot},
    users,
};
use crate::error::Error;
use folioswap_supervisor::{ipc::groups, size, view::GroupSnapshot};
use serde_json::json;
use std::io::{self, IsTerminal, Write};

/// The command.
///
/// # Errors
/// The output cannot be written.
pub fn ps(arguments: &PsArguments) -> Result<i32, Error> {
    let (groups, mounts) = (groups(), mounts::all());
    let text = if arguments.json {
        let groups: Vec<_> = groups.iter().map(GroupSnapshot::summary).collect();
        let mounts: Vec<_> = mounts.iter().map(MountSnapshot::json).collect();
        format!("{:#}\n", json!({ "groups": groups, "mounts": mounts }))
    } else {
        table(&groups, &mounts, width())
    };
    io::stdout().write_all(text.as_bytes()).map_err(Error::Output)?;
    Ok(0)
}

/// All groups that answer, by name.
pub fn groups() -> Vec<GroupSnapshot> {
    let all = groups::running(None).unwrap_or_default();
    let mut groups: Vec<GroupSnapshot> = all.iter().map(GroupSnapshot::read).collect();
    groups.sort_by(|one, other| (&one.name, one.pid).cmp(&(&other.name, other.pid)));
    groups
}

/// The columns of a terminal; elsewhere lines are as long as they are.
fn width() -> usize {
    let columns = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    if io::stdout().is_terminal() { columns().filter(|&width| width > 0).unwrap_or(80) } else { usize::MAX }
}

/// The heading, and whether a column is of text.
const COLUMNS: [(&str, Align); 11] = [
    ("NAME", Align::Left),
    ("PID", Align::Right),
    ("USER", Align::Left),
    ("LIMIT", Align::Right),
    ("CHARGE", Align::Right),
    ("SWAPPED", Align::Right),
    ("RATIO", Align::Right),
    ("SOME10", Align::Right),
    ("PROCS", Align::Right),
    ("STATE", Align::Left),
    ("COMMAND", Align::Left),
];

/// Where the cells of a column stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

fn table(groups: &[GroupSnapshot], mounts: &[MountSnapshot], width: usize) -> String {
    let mut rows = vec![COLUMNS.map(|(heading, _)| heading.to_owned())];
    rows.extend(groups.iter().map(|group| {
        [
            group.name.clone(),
            group.pid.to_string(),
            users::name(group.owner),
            size::short(group.limit),
            size::short(group.charge),
            size::short(group.swapped),
            ratio(group.ratio()),
            percent(group.pressure.some[0]),
            group.members.len().to_string(),
            group.state.name().to_owned(),
            group.command.clone(),
        ]
    }));
    rows.extend(mounts.iter().map(|mount| {
        [
            folioswap_supervisor::processes::proc::printable(&mount.directory.to_string_lossy()),
            "-".to_owned(),
            users::name(mount.owner),
            size::short(mount.limit()),
            size::short(mount.charge()),
            size::short(mount.swapped()),
            ratio(mount.ratio()),
            "-".to_owned(),
            "-".to_owned(),
            "mounted".to_owned(),
            format!("({} of {})", size::short(mount.get("content")), size::short(mount.get("content_max"))),
        ]
    }));
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (index, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[index] - cell.chars().count());
            match COLUMNS[index].1 {
                Align::Left => line.extend([cell.as_str(), &pad, " "]),
                Align::Right => line.extend([pad.as_str(), cell, " "]),
            }
        }
        text.extend(line.trim_end().chars().take(width));
        text.push('\n');
    }
    text
}

/// Hundredths of a percent as a percentage.
pub fn percent(hundredths: u32) -> String {
    format!("{:.1}", f64::from(hundredths) / 100.0)
}

/// A ratio for people, a dash where there is none.
pub fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}x"))
}

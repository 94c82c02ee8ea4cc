//! `folioswap stats`: what has happened in a running group, or in a mount, so far.

use super::{
    arguments::StatsArguments,
    mounts::MountSnapshot,
    ps,
    targets::{self, Target},
};
use crate::error::Error;
use folioswap_group::counters::{Counter, ORDERS, SIZE_NAMES, SizeCounter};
use folioswap_supervisor::{
    report::table::{self, Sizes},
    size,
    view::GroupSnapshot,
};
use std::{
    fmt::Write as _,
    io::{self, Write},
    time::Duration,
};

/// The command.
///
/// # Errors
/// There is no such group or mount; the output cannot be written.
pub fn stats(arguments: &StatsArguments) -> Result<i32, Error> {
    let text = match targets::find(&arguments.target)? {
        Target::Group(group) => {
            let group = GroupSnapshot::read(&group);
            if arguments.json { format!("{:#}\n", group.json()) } else { of_group(&group) }
        }
        Target::Mount(point) => {
            let mount = MountSnapshot::read(&point)?;
            if arguments.json { format!("{:#}\n", mount.json()) } else { of_mount(&mount) }
        }
    };
    io::stdout().write_all(text.as_bytes()).map_err(Error::Output)?;
    Ok(0)
}

/// Makes lines of a name and a value, the values one below the other.
fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // A String takes everything.
    let _ = writeln!(text, "{name:<28}{value}");
}

fn of_group(group: &GroupSnapshot) -> String {
    let mut text = String::new();
    line(&mut text, "group", format_args!("{} ({})", group.name, group.command));
    line(&mut text, "state", format_args!("{}, for {}", group.state.name(), age(group.age())));
    line(&mut text, "limit", format_args!("{} ({})", size::show(group.limit), group.scope));
    let share = 100.0 * group.charge as f64 / group.limit.max(1) as f64;
    line(&mut text, "charge", format_args!("{} ({share:.0} % of the limit)", size::show(group.charge)));
    let parts = group.parts;
    let of = [
        ("resident", parts.resident),
        ("compressed", parts.store),
        ("staging", parts.staging),
        ("tables", parts.tables),
        ("unmanaged", parts.unmanaged),
        ("devices in RAM", parts.devices),
    ];
    for (name, bytes) in of.into_iter().filter(|(_, bytes)| *bytes > 0) {
        line(&mut text, &format!("  {name}"), size::show(bytes));
    }
    line(
        &mut text,
        "swapped",
        format_args!("{} (ratio {})", size::show(group.swapped), ps::ratio(group.ratio())),
    );
    let pressure = group.pressure;
    let both = [
        ("pressure some", pressure.some, pressure.some_total_us),
        ("pressure full", pressure.full, pressure.full_total_us),
    ];
    for (name, avg, total) in both {
        let [ten, minute, five_minutes] = avg.map(ps::percent);
        line(&mut text, name, format_args!("avg10={ten} avg60={minute} avg300={five_minutes} total={total}"));
    }
    line(&mut text, "processes", group.members.len());
    for member in &group.members {
        let (charge, swapped) = (size::short(member.charge_bytes), size::short(member.swapped_bytes));
        line(
            &mut text,
            &format!("  {} {}", member.pid, member.name),
            format_args!("{charge}, {swapped} swapped"),
        );
    }
    text.push('\n');
    text.push_str(&table::render(&group.devices, Sizes::Readable));
    text.push('\n');
    for &counter in Counter::ALL {
        let count = group.counters.get(counter);
        if count > 0 {
            line(&mut text, counter.name(), count);
        }
    }
    for (order, name) in SIZE_NAMES.iter().enumerate().take(ORDERS) {
        for &counter in SizeCounter::ALL {
            let count = group.counters.size(counter, order);
            if count > 0 {
                line(&mut text, &format!("{name}/{}", counter.name()), count);
            }
        }
    }
    text
}

fn of_mount(mount: &MountSnapshot) -> String {
    let mut text = String::new();
    line(&mut text, "mount", mount.directory.display());
    line(&mut text, "limit", size::show(mount.limit()));
    line(&mut text, "charge at most", size::show(mount.charge()));
    let (content, most) = (size::show(mount.get("content")), size::show(mount.get("content_max")));
    line(&mut text, "contents", format_args!("{content} of {most}"));
    line(
        &mut text,
        "swapped",
        format_args!("{} (ratio {})", size::show(mount.swapped()), ps::ratio(mount.ratio())),
    );
    text.push('\n');
    for (name, kind, bytes, used, prio) in mount.devices() {
        let bytes = if bytes == 0 { "-".to_owned() } else { size::show(bytes) };
        line(&mut text, &name, format_args!("{kind}, {} of {bytes}, prio {prio}", size::show(used)));
    }
    text.push('\n');
    for (name, value) in mount.figures() {
        line(&mut text, name, value);
    }
    text
}

/// A time for people: `3 h 20 min`, `4 min 5 s`, `12 s`.
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

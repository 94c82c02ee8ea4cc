//! `folioswap swapon --show`: asks every running group for its segment and prints its devices.

use crate::{
    cli::SwaponArguments,
    error::Error,
    process,
    shared::Mapped,
    supervisor::totals::Levels,
    table::{self, Device, Health, Sizes},
    wire,
};
use folioswap_group::{
    counters::Gauge,
    devices::{DeviceDescription, DeviceEntry, DeviceKind},
    protocol::{Kind, Message},
    segment::{CLUSTER_BYTES, Segment},
};
use rustix::{
    fd::{AsRawFd, OwnedFd},
    net::sockopt::{Timeout, set_socket_timeout},
};
use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

/// A group that does not answer (its supervisor is stopped) is passed over after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A group that answered.
struct Group {
    segment: Mapped,
    /// Of its devices, by number; empty where we cannot see it.
    names: Vec<PathBuf>,
}

/// The command.
///
/// # Errors
/// The process asked for is in no group; the output cannot be written.
pub fn swapon(arguments: &SwaponArguments) -> Result<i32, Error> {
    let mut groups: Vec<Group> = names().iter().filter_map(|name| ask(name)).collect();
    if let Some(pid) = arguments.pid {
        groups.retain(|group| {
            let supervisor = group.segment.header.supervisor_pid.load(Relaxed);
            process::descends_from(pid, supervisor)
                || process::state_and_parent(supervisor).is_some_and(|(_, front)| front == pid)
        });
        if groups.is_empty() {
            return Err(Error::NoSuchGroup(pid));
        }
    }
    let sizes = if arguments.bytes { Sizes::Bytes } else { Sizes::Readable };
    let mut text = String::new();
    for group in &groups {
        if groups.len() > 1 {
            text.push_str(&format!("group {}:\n", group.segment.header.supervisor_pid.load(Relaxed)));
        }
        let levels = Levels::read(&group.segment);
        let devices = devices(&group.segment, &levels, &group.names);
        let rows: Vec<Device> = devices.into_iter().map(|(_, device)| device).collect();
        text.push_str(&table::render(&rows, sizes));
    }
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Output)?;
    Ok(0)
}

/// The devices of a group with their numbers, in the order of use. `names` are those that are known, by number.
pub fn devices(segment: &Segment, levels: &Levels, names: &[PathBuf]) -> Vec<(usize, Device)> {
    let bytes = |clusters: u32| u64::from(clusters) * CLUSTER_BYTES;
    let row = |(number, (device, entry)): (usize, (DeviceDescription, &DeviceEntry))| {
        let name = names.get(number).filter(|name| !name.as_os_str().is_empty());
        let name = name.map_or_else(|| device.kind.name().to_owned(), |name| column(name));
        let (size, used) = match device.kind {
            DeviceKind::Zram => (None, levels.gauge(Gauge::MemUsedTotal)),
            DeviceKind::Ram | DeviceKind::File | DeviceKind::Block | DeviceKind::Nbd => {
                (Some(bytes(device.clusters)), bytes(entry.clusters_used.load(Relaxed)))
            }
        };
        let errors = entry.errors.load(Relaxed);
        let health = if entry.is_failed() { Health::Failed } else { Health::Good };
        (number, Device { name, kind: device.kind, size, used, prio: device.priority, errors, health })
    };
    let mut devices: Vec<(usize, Device)> = segment.devices().enumerate().map(row).collect();
    devices.sort_by_key(|(_, device)| std::cmp::Reverse(device.prio));
    devices
}

/// A device's name as one column of a table: blanks and what does not print are written as in `/proc/swaps`, three octal
/// digits after a backslash.
fn column(directory: &Path) -> String {
    let mut name = String::new();
    for character in directory.display().to_string().chars() {
        if character.is_whitespace() || character.is_control() || character == '\\' {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                name.push_str(&format!("\\{byte:03o}"));
            }
        } else {
            name.push(character);
        }
    }
    name
}

/// Names of the sockets of running groups, as far as this network namespace shows them.
fn names() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'))
        .filter(|name| name.strip_prefix("folioswap-").is_some_and(|rest| rest.len() == 32))
        .map(str::to_owned)
        .collect()
}

fn ask(name: &str) -> Option<Group> {
    let socket = wire::connect_to(name).ok()?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).ok()?;
    wire::send(&socket, &Message::new(Kind::Query, [0; 3]), &[]).ok()?;
    let answer = wire::receive(&socket).ok()??;
    if answer.message.kind() != Some(Kind::Answer) {
        return None;
    }
    let mut descriptors = answer.descriptors.into_iter();
    let segment = Mapped::read_only(descriptors.next()?).ok()?;
    let mut rams = 0..;
    let mut exports = 0..;
    let mut name_of = |number: usize, kind: DeviceKind| match kind {
        DeviceKind::Zram => None,
        DeviceKind::Ram => Some(ram_name(rams.next()?)),
        DeviceKind::Nbd => Some(format!("nbd{}", exports.next()?).into()),
        DeviceKind::File | DeviceKind::Block if answer.message.words[0] >> number & 1 == 0 => None,
        DeviceKind::File | DeviceKind::Block => path_of(&descriptors.next()?),
    };
    let named = segment.devices().enumerate().map(|(number, (device, _))| name_of(number, device.kind));
    let names = named.map(Option::unwrap_or_default).collect();
    Some(Group { segment, names })
}

/// The name of the RAM device that was given after so many others.
pub fn ram_name(number: usize) -> PathBuf {
    format!("ram{number}").into()
}

fn path_of(fd: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_column() {
        assert_eq!(column(Path::new("/var/tmp")), "/var/tmp");
        assert_eq!(column(Path::new("/mnt/a b\\\n")), "/mnt/a\\040b\\134\\012");
    }
}

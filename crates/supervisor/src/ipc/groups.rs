//! The groups that run on this machine, as far as we may look at them.

use super::{mapped::Mapped, wire};
use crate::{devices::ram_name, processes::proc};
use folioswap_group::{
    devices::DeviceKind,
    protocol::{Kind, Message},
};
use rustix::{
    fd::{AsRawFd, OwnedFd},
    net::sockopt::{Timeout, set_socket_timeout},
};
use std::{collections::BTreeSet, fs, path::PathBuf, sync::atomic::Ordering::Relaxed, time::Duration};

/// A group that does not answer (its supervisor is stopped) is passed over after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A group that answered.
pub struct Group {
    /// Its name, to connect to.
    pub socket: String,
    /// What it knows of itself, read-only.
    pub segment: Mapped,
    /// Of its devices, by number; empty where we cannot see it.
    pub names: Vec<PathBuf>,
}

/// All that answer, or the one that this process belongs to.
///
/// # Errors
/// [`GroupError::NoSuchGroup`]: it is in none.
pub fn running(member: Option<u32>) -> Result<Vec<Group>, GroupError> {
    let mut groups: Vec<Group> = names().iter().filter_map(|name| ask(name)).collect();
    if let Some(pid) = member {
        groups.retain(|group| {
            let supervisor = group.segment.header.supervisor_pid.load(Relaxed);
            proc::descends_from(pid, supervisor)
                || proc::state_and_parent(supervisor).is_some_and(|(_, front)| front == pid)
        });
        if groups.is_empty() {
            return Err(GroupError::NoSuchGroup(pid));
        }
    }
    Ok(groups)
}

/// Which group is meant?
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Nothing runs.
    #[error("no folioswap group runs that you may look at (`folioswap swapon --show`)")]
    None,
    /// Which one?
    #[error("{0} groups run: name a process of the one that is meant (`folioswap swapon --show` lists them)")]
    Several(usize),
    /// `swapon --show PID` for a process in no group.
    #[error(
        "process {0} belongs to no running folioswap group that you may look at; `folioswap swapon --show` lists all"
    )]
    NoSuchGroup(u32),
}

/// The group that this process belongs to, or the only one that runs.
///
/// # Errors
/// [`GroupError`].
pub fn only(member: Option<u32>) -> Result<Group, GroupError> {
    let mut groups = running(member)?;
    match groups.len() {
        0 => Err(GroupError::None),
        1 => Ok(groups.remove(0)),
        count => Err(GroupError::Several(count)),
    }
}

/// Names of the sockets of running groups, as far as this network namespace shows them.
fn names() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'))
        .filter(|name| wire::is_name(name))
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
    Some(Group { socket: name.to_owned(), segment, names })
}

fn path_of(fd: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

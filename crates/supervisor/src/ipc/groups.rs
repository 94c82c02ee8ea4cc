//! The groups that run on this machine, as far as the caller may look at them.

use super::{description::Description, group_memory::GroupView, wire};
use crate::{
    devices::ram_name,
    processes::{peer, proc},
};
use folioswap_group::{
    devices::DeviceKind,
    protocol::{Kind, Message},
};
use rustix::{
    fd::{AsRawFd, OwnedFd},
    io::Errno,
    net::sockopt::{Timeout, set_socket_timeout},
};
use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

/// How long a group may take to answer; a group whose supervisor is stopped is passed over.
const PATIENCE: Duration = Duration::from_secs(1);

/// A group that answered.
pub struct Group {
    /// The user whose group it is, by the kernel's word.
    pub owner: u32,
    /// What it says of itself.
    pub description: Description,
    /// The abstract name of its socket.
    pub socket: String,
    /// Its memories, mapped for reading.
    pub memory: GroupView,
    /// The names of its devices, by number; empty where the caller cannot see the name.
    pub names: Vec<PathBuf>,
}

/// All groups that answer, or the one to which the process `member` belongs: as a descendant of its
/// supervisor, or as its front.
///
/// # Errors
/// [`GroupError::NoSuchGroup`] when the process belongs to no group.
pub fn running(member: Option<u32>) -> Result<Vec<Group>, GroupError> {
    let mut groups: Vec<Group> = names().iter().filter_map(|name| ask(name)).collect();
    if let Some(pid) = member {
        groups.retain(|group| group.has_process(pid));
        if groups.is_empty() {
            return Err(GroupError::NoSuchGroup(pid));
        }
    }
    Ok(groups)
}

impl Group {
    /// The process id of its supervisor.
    pub fn supervisor(&self) -> u32 {
        self.memory.group().decisions.supervisor_pid()
    }

    /// Whether the process belongs to this group: as a descendant of its supervisor, or as its
    /// front.
    pub fn has_process(&self, pid: u32) -> bool {
        let supervisor = self.supervisor();
        // The number is the group's own word: another user's supervisor is not believed to be its.
        proc::identity(supervisor).is_some_and(|identity| identity.user == self.owner)
            && (proc::descends_from(pid, supervisor)
                || proc::state_and_parent(supervisor).is_some_and(|(_, front)| front == pid))
    }
}

/// Why a command finds no group to act on.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// No group runs.
    #[error("no folioswap group runs that you may look at (`folioswap swapon --show`)")]
    None,
    /// Several groups run, and none was named.
    #[error("{0} groups run: name a process of the one that is meant (`folioswap swapon --show` lists them)")]
    Several(usize),
    /// The named process belongs to no group.
    #[error(
        "process {0} belongs to no running folioswap group that you may look at; `folioswap swapon --show` lists all"
    )]
    NoSuchGroup(u32),
}

/// The group to which the process `member` belongs, or else the only one that runs.
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

/// The socket names of running groups, as far as this network namespace shows them.
fn names() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'))
        .filter(|name| wire::is_name(name))
        .map(str::to_owned)
        .collect()
}

/// Whether a group has this socket, also one that does not answer.
pub fn has_socket(name: &str) -> bool {
    names().contains(name)
}

/// The answer of a group to a query.
pub struct Answer {
    /// The user whose group it is, by the kernel's word.
    owner: u32,
    /// What the group says of itself.
    description: Description,
    /// The memories of the group, mapped for reading.
    pub memory: GroupView,
    /// The numbers of the devices that [`Answer::directories`] belong to, a bit each.
    with_directory: u64,
    /// Descriptors that name the directories of devices.
    directories: Vec<OwnedFd>,
}

/// Asks a group for its memories and waits for at most `patience`.
///
/// # Errors
/// `ECONNREFUSED` when no such group runs, `EAGAIN` when it does not answer in time or has too many
/// connections waiting, `EPROTO` for
/// another answer, `EINVAL` for a group of another version, `EPERM` when neither root nor our own
/// user offers that name: whoever may open sockets may call one as a group is called.
pub fn query(name: &str, patience: Duration) -> Result<Answer, Errno> {
    let socket = wire::connect_at_once(name)?;
    let owner = peer::user_of(&socket)?;
    let own = rustix::process::geteuid();
    if !(owner.is_root() || own.is_root() || owner == own) {
        return Err(Errno::PERM);
    }
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    wire::send(&socket, &Message::new(Kind::Query, [0; 3]), &[])?;
    let answer = wire::receive(&socket)?.filter(|answer| answer.message.kind() == Some(Kind::Answer));
    let answer = answer.ok_or(Errno::PROTO)?;
    let mut descriptors = answer.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(Errno::PROTO);
    let (decisions, segment, text) = (next()?, next()?, next()?);
    let memory = GroupView::for_reading(decisions, segment)?;
    Ok(Answer {
        owner: owner.as_raw(),
        description: Description::of_text(&text)?,
        memory,
        with_directory: answer.message.words[0],
        directories: descriptors.collect(),
    })
}

/// Asks a group for all that it knows of itself; `None` for one that does not answer.
fn ask(name: &str) -> Option<Group> {
    let Answer { owner, description, memory, with_directory, directories } = query(name, PATIENCE).ok()?;
    let mut directories = directories.into_iter();
    let mut rams = 0..;
    let mut exports = 0..;
    let mut name_of = |number: usize, kind: DeviceKind| match kind {
        DeviceKind::Zram => None,
        DeviceKind::Ram => Some(ram_name(rams.next()?)),
        DeviceKind::Nbd => Some(format!("nbd{}", exports.next()?).into()),
        DeviceKind::File | DeviceKind::Block if with_directory >> number & 1 == 0 => None,
        DeviceKind::File | DeviceKind::Block => path_of(&directories.next()?),
    };
    let devices = memory.group().decisions.devices().enumerate();
    let named = devices.map(|(number, (device, _))| name_of(number, device.kind));
    let names = named.map(Option::unwrap_or_default).collect();
    Some(Group { owner, description, socket: name.to_owned(), memory, names })
}

fn path_of(fd: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

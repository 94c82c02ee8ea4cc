//! The changes that a group makes for a command: another limit, freeze, thaw.

use super::{
    OperateError,
    arguments::FreezeArguments,
    targets::{self, Target},
};
use crate::error::Error;
use folioswap_group::protocol::{Change, ChangeEnd, Kind, Message};
use folioswap_supervisor::{
    ipc::{groups::Group, wire},
    processes::proc,
    size,
};
use std::ffi::OsStr;

/// Where a group is asked for a change, and what messages call it.
#[derive(Clone, Debug)]
pub struct Address {
    /// The abstract name of its socket.
    socket: String,
    /// Its name, and the process id of its supervisor.
    target: String,
}

impl From<&Group> for Address {
    fn from(group: &Group) -> Self {
        let target = format!("{} ({})", group.description.name, group.supervisor());
        Address { socket: group.socket.clone(), target }
    }
}

/// Asks a group for a change and waits for its end. Returns the charge of the group then. While
/// the command waits, its end takes the change back.
///
/// # Errors
/// [`OperateError`]; the group is as before.
pub fn ask(group: &Group, change: Change) -> Result<u64, OperateError> {
    ask_at(&group.into(), change)
}

/// [`ask`] for threads, which cannot have the memories of a group.
///
/// # Errors
/// [`OperateError`]; the group is as before.
pub fn ask_at(address: &Address, change: Change) -> Result<u64, OperateError> {
    let target = || address.target.clone();
    let system = |errno: rustix::io::Errno| OperateError::System { target: target(), source: errno.into() };
    let socket = wire::connect_to(&address.socket).map_err(system)?;
    wire::send(&socket, &Message::new(Kind::Change, change.pack()), &[]).map_err(system)?;
    let Some(answer) = wire::receive(&socket).map_err(system)? else {
        return Err(OperateError::Ended(target()));
    };
    let is_end = answer.message.kind() == Some(Kind::ChangeEnd);
    match ChangeEnd::unpack(answer.message.words).filter(|_| is_end) {
        Some(ChangeEnd::Done { charge }) => Ok(charge),
        Some(ChangeEnd::Busy) => Err(OperateError::Busy(target())),
        end => Err(OperateError::Refused { target: target(), reason: reason(end, change) }),
    }
}

fn reason(end: Option<ChangeEnd>, change: Change) -> String {
    match end {
        None | Some(ChangeEnd::Done { .. } | ChangeEnd::Busy) => {
            "its folioswap speaks another version".to_owned()
        }
        Some(ChangeEnd::NotPermitted) => {
            "only root or the user whose group it is may change it, and no process of the group itself"
                .to_owned()
        }
        Some(ChangeEnd::TooSmall { least }) => format!("the least limit is {}", size::show(least)),
        Some(ChangeEnd::NoRoom { charge }) => {
            let asked = match change {
                Change::Limit(bytes) | Change::LimitInTiers { bytes, .. } => bytes,
                _ => 0,
            };
            format!(
                "it does not come below {}, more than {}: the rest cannot leave, or swap is full; the old limit holds. Give \
                 at least --memory {}, or more swap (`folioswap swapon --swap`)",
                size::show(charge),
                size::show(asked),
                size::suggest(charge)
            )
        }
        Some(ChangeEnd::Frozen { charge }) => format!(
            "it is frozen and has {}, which cannot leave meanwhile; thaw it first (`folioswap thaw`)",
            size::show(charge)
        ),
        Some(ChangeEnd::NoMember { process }) => {
            format!("it has no managed process {process}; `folioswap stats` lists them")
        }
        Some(ChangeEnd::NoDevice) => {
            "no device of these tiers takes pages (`folioswap swapon --show`)".to_owned()
        }
        Some(ChangeEnd::Unstoppable { process }) => format!(
            "process {process} ({}) cannot be stopped (it belongs to another user, or processes are made faster than they \
             are stopped); all go on",
            proc::name(process)
        ),
    }
}

/// The command `freeze`.
///
/// # Errors
/// [`OperateError`]; all processes go on.
pub fn freeze(arguments: &FreezeArguments) -> Result<i32, Error> {
    of_group(&arguments.target, Change::Freeze)
}

/// The command `thaw`.
///
/// # Errors
/// [`OperateError`].
pub fn thaw(arguments: &FreezeArguments) -> Result<i32, Error> {
    of_group(&arguments.target, Change::Thaw)
}

fn of_group(target: &OsStr, change: Change) -> Result<i32, Error> {
    match targets::find(target)? {
        Target::Group(group) => ask(&group, change)?,
        Target::Mount(point) => return Err(OperateError::NotFrozen(point.directory).into()),
    };
    Ok(0)
}

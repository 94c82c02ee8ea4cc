//! `folioswap swapon`: prints the devices of running groups, or has the supervisor of a group add
//! one more device (`folioswap_supervisor`, `supervisor/swapon.rs`).

use crate::{cli::SwaponArguments, error::Error};
use folioswap_group::protocol::{Kind, Message};
use folioswap_supervisor::{
    ipc::{
        groups::{self, Group},
        wire,
    },
    report::{
        table::{self, Device, Health, Sizes},
        totals::Levels,
    },
};
use rustix::{fd::AsFd, io::Errno};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
};

/// The command.
///
/// # Errors
/// The named process is in no group; the device was not added; the output cannot be written.
pub fn swapon(arguments: &SwaponArguments) -> Result<i32, Error> {
    if let Some(device) = &arguments.swap {
        return add(device, &groups::only(arguments.pid)?);
    }
    let groups = groups::running(arguments.pid)?;
    let sizes = if arguments.bytes { Sizes::Bytes } else { Sizes::Readable };
    let mut text = String::new();
    for group in &groups {
        if groups.len() > 1 {
            text.push_str(&format!("group {}:\n", group.memory.group().decisions.supervisor_pid()));
        }
        let memory = group.memory.group();
        let devices = table::devices(memory.decisions, &Levels::read(memory), &group.names);
        let rows: Vec<Device> =
            devices.into_iter().map(|(_, row)| row).filter(|row| row.health != Health::Off).collect();
        text.push_str(&table::render(&rows, sizes));
    }
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Output)?;
    Ok(0)
}

/// Asks the supervisor of a group to add a device, and waits for the answer.
fn add(device: &OsStr, group: &Group) -> Result<i32, Error> {
    let failed = |source: io::Error| SwaponError::System { device: device.to_owned(), source };
    let system = |errno: Errno| failed(errno.into());
    let socket = wire::connect_to(&group.socket).map_err(system)?;
    let text = wire::text(device.as_bytes()).map_err(system)?;
    let directory = File::open(".").map_err(failed)?;
    let carried = [text.as_fd(), directory.as_fd()];
    wire::send(&socket, &Message::new(Kind::Swapon, [0; 3]), &carried).map_err(system)?;
    let Some(answer) = wire::receive(&socket).map_err(system)? else {
        return Err(SwaponError::Ended(device.to_owned()).into());
    };
    if answer.message.words[0] == 1 {
        return Ok(0);
    }
    let why = answer.descriptors.first().and_then(|text| wire::text_in(text).ok()).unwrap_or_default();
    Err(SwaponError::Refused(String::from_utf8_lossy(&why).into_owned()).into())
}

/// Why a device was not added. The group is as before.
#[derive(Debug, thiserror::Error)]
pub enum SwaponError {
    /// The supervisor refused, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The group ended meanwhile.
    #[error("swapon of {}: the group has ended", .0.display())]
    Ended(OsString),
    /// A system call failed.
    #[error("swapon of {}: {source}", device.display())]
    System {
        /// The device.
        device: OsString,
        /// The reason.
        source: io::Error,
    },
}

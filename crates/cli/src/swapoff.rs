//! `folioswap swapoff`: takes a device of a running group, or of a mount, out of use.
//!
//! The supervisor of the group does the work (`folioswap_supervisor`, `supervisor/swapoff.rs`).
//! This command names the device and waits. The swapoff goes on as long as the connection stands,
//! so this command leaves the device in use whatever kills it.

use crate::{cli::SwapoffArguments, device_name, error::Error, mount};
use folioswap_group::{
    devices::DeviceUsage,
    protocol::{Kind, Message, SwapoffEnd},
    segment::CLUSTER_BYTES,
};
use folioswap_supervisor::{
    ipc::{
        groups::{self, Group},
        wire,
    },
    processes::proc,
    report::{table, totals::Levels},
    size,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

/// The time between two lines of progress on a terminal.
const PROGRESS: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Why a swapoff failed. The device is in use as before, except after `Lost`.
#[derive(Debug, thiserror::Error)]
pub enum SwapoffError {
    /// The group has no such device.
    #[error("the group has no swap device {}; it has {have}", device.display())]
    NoDevice {
        /// The device as given.
        device: PathBuf,
        /// The names of its devices.
        have: String,
    },
    /// The supervisor refused the swapoff, or gave it up.
    #[error("swapoff of {}: {reason}; it is in use as before", device.display())]
    Refused {
        /// The device.
        device: PathBuf,
        /// The reason, and the remedy.
        reason: String,
    },
    /// The group ended meanwhile, and its devices with it.
    #[error("swapoff of {}: the group has ended", .0.display())]
    Ended(PathBuf),
    /// The device is off, and pages of it are lost.
    #[error(
        "swapoff of {}: it is off, but {pages} pages of it could not be read: whoever touches one gets SIGBUS", device.display()
    )]
    Lost {
        /// The device.
        device: PathBuf,
        /// The number of lost pages.
        pages: u64,
    },
    /// A system call failed.
    #[error("swapoff of {}: {source}", device.display())]
    System {
        /// The device.
        device: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The command.
///
/// # Errors
/// [`SwapoffError`], or those of a mount.
pub fn swapoff(arguments: &SwapoffArguments) -> Result<i32, Error> {
    if let Some(directory) = &arguments.directory {
        return mount::swapoff(directory, &arguments.device);
    }
    let group = groups::only(arguments.pid)?;
    let (number, device) = named(&group, &arguments.device)?;
    Ok(take_off(&group, number, device)?)
}

fn take_off(group: &Group, number: usize, device: PathBuf) -> Result<i32, SwapoffError> {
    let system = |errno: Errno| SwapoffError::System { device: device.clone(), source: errno.into() };
    let socket = wire::connect_to(&group.socket).map_err(system)?;
    wire::send(&socket, &Message::new(Kind::Swapoff, [number as u64, 0, 0]), &[]).map_err(system)?;
    let progress = Progress::new(group, number, &device);
    let timeout = progress.is_shown.then_some(&PROGRESS);
    loop {
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], timeout) {
            Ok(0) | Err(Errno::INTR) => progress.show(),
            Ok(_) => break,
            Err(errno) => return Err(system(errno)),
        }
    }
    progress.clear();
    let Some(answer) = wire::receive(&socket).map_err(system)? else {
        return Err(SwapoffError::Ended(device));
    };
    let reason = match SwapoffEnd::unpack(answer.message.words) {
        Some(SwapoffEnd::Done { lost: 0 }) => return Ok(0),
        Some(SwapoffEnd::Done { lost }) => return Err(SwapoffError::Lost { device, pages: lost }),
        Some(why) => reason(why),
        None => "the group's folioswap speaks another version".to_owned(),
    };
    Err(SwapoffError::Refused { device, reason })
}

fn reason(why: SwapoffEnd) -> String {
    match why {
        SwapoffEnd::Done { .. } | SwapoffEnd::NoDevice => "the group has no such device".to_owned(),
        SwapoffEnd::NotPermitted => "only root or the user whose group it is may do that".to_owned(),
        SwapoffEnd::Busy => "another device of the group is just leaving".to_owned(),
        SwapoffEnd::Store => "zram is each process's own compressed RAM".to_owned(),
        SwapoffEnd::NoOther => "the group has no other device that takes what is on it, among its tiers (`folioswap set --swap-tiers`)".to_owned(),
        SwapoffEnd::NoRoom { used, free } => format!(
            "up to {} are on it, and the other devices have room for only {}: end something, or let it free memory, and try again",
            size::show(used),
            size::show(free)
        ),
        SwapoffEnd::Stalled { left, process } => {
            let who = match proc::status(process) {
                Some(status) => format!("process {process} ({}) has some of it", status.name),
                None => "a process that has just begun has some of it".to_owned(),
            };
            format!(
                "{} are left on it and find no room elsewhere, or their processes are stopped ({who})",
                size::show(left)
            )
        }
    }
}

/// The number and the name of a device. `given` is the name in the table, or a path to it.
fn named(group: &Group, given: &Path) -> Result<(usize, PathBuf), SwapoffError> {
    let memory = group.memory.group();
    let devices = table::devices(memory.decisions, &Levels::read(memory), &group.names);
    let in_use = |number: usize| {
        memory.decisions.devices().nth(number).is_some_and(|(_, entry)| entry.usage() != DeviceUsage::Off)
    };
    let name = |number: usize, shown: String| match group.names.get(number) {
        Some(name) if !name.as_os_str().is_empty() => name.clone(),
        _ => shown.into(),
    };
    let in_use = devices.into_iter().filter(|(number, _)| in_use(*number));
    let (numbers, names): (Vec<usize>, Vec<PathBuf>) =
        in_use.map(|(number, row)| (number, name(number, row.name))).unzip();
    device_name::find(&names, given)
        .map(|index| (numbers[index], names[index].clone()))
        .ok_or_else(|| SwapoffError::NoDevice { device: given.to_owned(), have: device_name::list(&names) })
}

/// The display of how much is left on the device, for a user at a terminal.
struct Progress<'g> {
    group: &'g Group,
    number: usize,
    device: &'g Path,
    is_shown: bool,
}

impl<'g> Progress<'g> {
    fn new(group: &'g Group, number: usize, device: &'g Path) -> Self {
        Progress { group, number, device, is_shown: io::stderr().is_terminal() }
    }

    fn show(&self) {
        let left = u64::from(self.group.memory.group().decisions.devices[self.number].clusters_used());
        if self.is_shown {
            eprint!("\r{}: {} left \x1b[K", self.device.display(), size::show(left * CLUSTER_BYTES));
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

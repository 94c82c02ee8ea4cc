//! `folioswap set`: another limit, other tiers or weights for a group or a mount that is in use.

use super::{
    OperateError,
    arguments::{SetArguments, Weighed},
    change,
    mounts::{self, MountSnapshot},
    targets::{self, Target},
};
use crate::{error::Error, host, interrupt::Signals, mount::mounts::MountPoint, swap_tiers};
use folioswap_group::protocol::Change;
use folioswap_supervisor::{devices::priorities, ipc::groups::Group, size};
use folioswap_tmpfs::{MEMORY, SIZE, TIERS, Within};
use rustix::{
    fs::{XattrFlags, setxattr},
    io::Errno,
};
use std::time::{Duration, Instant};

/// A limit above so many times the machine's memory is taken for a mistake.
const LIMIT_PER_RAM_MAX: u64 = 1024;
/// The time between two questions to a mount.
const PAUSE: Duration = Duration::from_millis(5);
/// The old limit of a mount holds again when no content has left for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command. Tiers come first: a lower limit may need them. If the limit is refused, the old
/// tiers hold again.
///
/// # Errors
/// [`OperateError`]; the old limits and tiers hold.
pub fn set(arguments: &SetArguments) -> Result<i32, Error> {
    let ram = host::memory_bytes();
    if let Some(given) = arguments.memory.filter(|given| given / LIMIT_PER_RAM_MAX > ram) {
        return Err(OperateError::TooLarge { given: size::show(given), ram: size::show(ram) }.into());
    }
    match targets::find(&arguments.target)? {
        Target::Group(group) => set_group(&group, arguments)?,
        Target::Mount(point) if !arguments.weight.is_empty() => {
            return Err(OperateError::NoWeight(point.directory).into());
        }
        Target::Mount(point) => {
            set_mount(&point, arguments.swap_tiers.as_deref(), arguments.memory, arguments.size)?;
        }
    }
    Ok(0)
}

fn set_group(group: &Group, arguments: &SetArguments) -> Result<(), Error> {
    if let Some(bytes) = arguments.size {
        return Err(OperateError::NoSize(size::show(bytes)).into());
    }
    let decisions = group.memory.group().decisions;
    let tiers = match &arguments.swap_tiers {
        None => None,
        Some(tiers) => {
            let priorities: Vec<_> = priorities(decisions).collect();
            Some(swap_tiers::devices_in(tiers, &priorities)?.bits())
        }
    };
    let change = match (arguments.memory, tiers) {
        (Some(bytes), Some(devices)) => Some(Change::LimitInTiers { bytes, devices }),
        (Some(bytes), None) => Some(Change::Limit(bytes)),
        (None, Some(devices)) => Some(Change::Tiers(devices)),
        (None, None) => None,
    };
    // It may fail for want of memory, so it comes first.
    if let Some(change) = change {
        change::ask(group, change)?;
    }
    for &weighed in &arguments.weight {
        let change = match weighed {
            Weighed::Group(weight) => Change::GroupWeight(weight),
            Weighed::Process { process, weight } => Change::Weight { process, weight },
        };
        change::ask(group, change)?;
    }
    Ok(())
}

/// Sets the tiers and limits of a mount. If a limit is refused, the old tiers hold again.
///
/// # Errors
/// [`OperateError`], and tiers that no device is in; the old tiers and limits hold.
pub fn set_mount(
    point: &MountPoint,
    tiers: Option<&str>,
    memory: Option<u64>,
    contents: Option<u64>,
) -> Result<(), Error> {
    let mut before = None;
    if let Some(tiers) = tiers {
        let now = MountSnapshot::read(point)?;
        let priorities: Vec<_> = now.devices().iter().map(|&(.., priority)| Some(priority as i32)).collect();
        swap_tiers::devices_in(tiers, &priorities)?;
        // The daemon of an earlier version has none.
        if now.tiers().is_empty() {
            return Err(not_set(point, Errno::OPNOTSUPP).into());
        }
        put_text(point, TIERS, tiers)?;
        before = Some(now.tiers().to_owned());
    }
    if memory.or(contents).is_none() {
        return Ok(());
    }
    let Err(refusal) = set_limits(point, memory, contents) else { return Ok(()) };
    match before.map(|before| put_text(point, TIERS, &before)) {
        None | Some(Ok(())) => Err(refusal.into()),
        Some(Err(error)) => {
            Err(refused(point, format!("{refusal}; the old tiers do not hold again: {error}")).into())
        }
    }
}

/// Sets the limits of a mount, that of memory first: it is the one that may fail.
///
/// # Errors
/// [`OperateError`]; the old limits hold.
pub fn set_limits(
    point: &MountPoint,
    memory: Option<u64>,
    contents: Option<u64>,
) -> Result<(), OperateError> {
    let before = MountSnapshot::read(point)?;
    if let Some(bytes) = contents.filter(|bytes| *bytes < before.get("content").max(4096)) {
        let reason = format!(
            "--size {}: it has {} of contents; remove some, or give more",
            size::show(bytes),
            size::show(before.get("content"))
        );
        return Err(refused(point, reason));
    }
    if let Some(bytes) = memory {
        set_memory(point, before.limit(), bytes)?;
    }
    if let Some(bytes) = contents
        && let Err(error) = put(point, SIZE, bytes)
    {
        if memory.is_some() {
            put(point, MEMORY, before.limit())?;
        }
        return Err(error);
    }
    Ok(())
}

/// Tries another limit: where the mount does not come within it, or is interrupted, the old one
/// holds again.
fn set_memory(point: &MountPoint, before: u64, bytes: u64) -> Result<(), OperateError> {
    let signals = Signals::block();
    put(point, MEMORY, bytes)?;
    let settled = settle(point, bytes, &signals);
    if settled.is_err() {
        put(point, MEMORY, before)?;
    }
    settled
}

/// Waits until the mount is within its new limit.
fn settle(point: &MountPoint, bytes: u64, signals: &Signals) -> Result<(), OperateError> {
    let (mut least, mut sank_at) = (u64::MAX, Instant::now());
    loop {
        let told = mounts::ask(&point.directory, MEMORY).map_err(|errno| system(point, errno))?;
        if told.ends_with(Within::Limit.name()) {
            return Ok(());
        }
        let used = MountSnapshot::read(point)?.charge();
        if used < least {
            (least, sank_at) = (used, Instant::now());
        }
        if sank_at.elapsed() >= PATIENCE {
            let reason = format!(
                "it does not come below {}, more than {}: swap is full, or inodes take the rest; the old limit holds. Give at \
                 least --memory {}",
                size::show(least),
                size::show(bytes),
                size::suggest(least)
            );
            return Err(refused(point, reason));
        }
        if signals.one_came_within(PAUSE) {
            return Err(refused(point, "interrupted; the old limit holds".to_owned()));
        }
    }
}

fn put(point: &MountPoint, attribute: &str, bytes: u64) -> Result<(), OperateError> {
    let set = setxattr(&point.directory, attribute, bytes.to_string().as_bytes(), XattrFlags::empty());
    set.map_err(|errno| match errno {
        Errno::INVAL if attribute == MEMORY => refused(
            point,
            format!(
                "--memory {} is too small for a mount, whose daemon has threads and tables too: give at least {}",
                size::show(bytes),
                size::show(folioswap_tmpfs::MEMORY_MIN)
            ),
        ),
        Errno::RANGE => refused(
            point,
            format!("--memory {} is more than this machine's RAM ({})", size::show(bytes), size::show(host::memory_bytes())),
        ),
        errno => not_set(point, errno),
    })
}

fn put_text(point: &MountPoint, attribute: &str, text: &str) -> Result<(), OperateError> {
    let set = setxattr(&point.directory, attribute, text.as_bytes(), XattrFlags::empty());
    set.map_err(|errno| not_set(point, errno))
}

fn not_set(point: &MountPoint, errno: Errno) -> OperateError {
    match errno {
        Errno::PERM | Errno::ACCESS => refused(point, "only root or who mounted it may change it".to_owned()),
        Errno::OPNOTSUPP => refused(point, "its daemon speaks another version".to_owned()),
        Errno::BUSY => refused(point, "a device of it is being taken out of use: try again then".to_owned()),
        errno => system(point, errno),
    }
}

fn refused(point: &MountPoint, reason: String) -> OperateError {
    OperateError::Refused { target: point.directory.display().to_string(), reason }
}

fn system(point: &MountPoint, errno: Errno) -> OperateError {
    OperateError::System { target: point.directory.display().to_string(), source: errno.into() }
}

//! Devices to replay on: `--device TYPE[,size=S][,prio=P][,sync|async][,discard]`.

use crate::ram_device::PAGE;
use folioswap_slots::{DeviceFlags, DeviceSpec};
use serde::Serialize;

/// The type of a device, as far as the allocator and the swap cache care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Compressed RAM: synchronous.
    Zram,
    /// Plain RAM like brd: not synchronous unless told so.
    Ram,
    /// A file: not synchronous.
    File,
    /// A rotating disk: not synchronous, with one next offset for all CPUs.
    Disk,
}

/// A device to replay on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The type.
    pub medium: Medium,
    /// Pages, header included. `None` takes the trace's peak and a quarter more, divided by the
    /// devices without a size.
    pub pages: Option<u64>,
    /// Priority, 0 to 32767; `None` is the default.
    pub priority: Option<i16>,
    /// Whether reads and writes complete at once.
    pub synchronous: bool,
    /// Whether free clusters are discarded.
    pub discard: bool,
}

/// Why a text is no device.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The type is unknown.
    #[error("{0:?} is no kind of device; write zram, ram, file or disk, e.g. `zram,size=8G,prio=1`")]
    Medium(String),
    /// An option is unknown.
    #[error("{0:?} is no option of a device; there are size=S, prio=P, sync, async and discard")]
    Option(String),
    /// The size is wrong.
    #[error("size={0}: not a size of 8K to 16T; write e.g. size=8G")]
    Size(String),
    /// The priority is wrong.
    #[error("prio={0}: not a priority; 0 to 32767")]
    Priority(String),
    /// An option is given twice.
    #[error("{0} is given twice")]
    Twice(String),
}

impl Device {
    /// Parses a device as the command line has it; `size` parses a size in bytes.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn parse(text: &str, size: impl Fn(&str) -> Option<u64>) -> Result<Device, DeviceError> {
        let mut words = text.split(',');
        let medium = match words.next().unwrap_or("") {
            "zram" => Medium::Zram,
            "ram" | "brd" => Medium::Ram,
            "file" => Medium::File,
            "disk" => Medium::Disk,
            other => return Err(DeviceError::Medium(other.to_owned())),
        };
        let synchronous = medium == Medium::Zram;
        let mut device = Device { medium, pages: None, priority: None, synchronous, discard: false };
        let mut seen: Vec<&str> = Vec::new();
        for word in words {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let kind = if name == "async" { "sync" } else { name };
            if seen.contains(&kind) {
                return Err(DeviceError::Twice(name.to_owned()));
            }
            seen.push(kind);
            match (name, value) {
                ("size", Some(value)) => {
                    let pages = size(value)
                        .map(|bytes| bytes / PAGE as u64)
                        .filter(|pages| (2..=1 << 32).contains(pages));
                    device.pages = Some(pages.ok_or_else(|| DeviceError::Size(value.to_owned()))?);
                }
                ("prio", Some(value)) => {
                    let priority = value.parse().ok().filter(|priority| *priority >= 0);
                    device.priority = Some(priority.ok_or_else(|| DeviceError::Priority(value.to_owned()))?);
                }
                ("sync", None) => device.synchronous = true,
                ("async", None) => device.synchronous = false,
                ("discard", None) => device.discard = true,
                _ => return Err(DeviceError::Option(word.to_owned())),
            }
        }
        Ok(device)
    }

    /// The arguments of swapon, with `pages` where no size was given.
    pub(super) fn spec(&self, pages: u64) -> DeviceSpec<'static> {
        let mut flags = DeviceFlags::NONE;
        for (set, flag) in [
            (self.synchronous, DeviceFlags::SYNCHRONOUS),
            (self.discard, DeviceFlags::DISCARD),
            (self.medium == Medium::Disk, DeviceFlags::ROTATIONAL),
        ] {
            if set {
                flags = flags | flag;
            }
        }
        DeviceSpec { priority: self.priority, flags, ..DeviceSpec::new(self.pages.unwrap_or(pages)) }
    }
}

#[cfg(test)]
mod tests;

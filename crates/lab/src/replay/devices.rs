//! `--device TYPE[,size=S][,prio=P][,sync|async][,discard]`.

use folioswap_slots::{DeviceFlags, DeviceSpec};
use serde::Serialize;

/// What a device is like, as far as the allocator and the swap cache care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Compressed RAM: synchronous.
    Zram,
    /// Plain RAM as brd has it: not synchronous unless said.
    Ram,
    /// A file: not synchronous.
    File,
    /// A rotating disk: not synchronous, one next offset for all CPUs.
    Disk,
}

/// A device to replay on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Kind.
    pub medium: Medium,
    /// Pages, header included; `None`: as much as the trace needs at most and a quarter more, shared by all such devices.
    pub pages: Option<u64>,
    /// 0 to 32767, or the default.
    pub priority: Option<i16>,
    /// Reads and writes end at once.
    pub synchronous: bool,
    /// Discards cluster by cluster.
    pub discard: bool,
}

/// Not a device.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The first word.
    #[error("{0:?} is no kind of device; write zram, ram, file or disk, e.g. `zram,size=8G,prio=1`")]
    Medium(String),
    /// One of the options.
    #[error("{0:?} is no option of a device; there are size=S, prio=P, sync, async and discard")]
    Option(String),
    /// The size.
    #[error("size={0}: not a size of 8K to 16T; write e.g. size=8G")]
    Size(String),
    /// The priority.
    #[error("prio={0}: not a priority; 0 to 32767")]
    Priority(String),
    /// An option is there twice.
    #[error("{0} is given twice")]
    Twice(String),
}

const PAGE: u64 = 4096;

impl Device {
    /// As given on the command line; `size` parses a size in bytes.
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
                    let pages =
                        size(value).map(|bytes| bytes / PAGE).filter(|pages| (2..=1 << 32).contains(pages));
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

    /// For swapon, with this size where none was given.
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

//! The value of `--swap`: `TYPE[:TARGET][,KEY[=VALUE]]...`, with the words of swapon(8).
//!
//! A comma or a backslash that belongs to the target has a backslash before it.

mod error;
mod keys;
#[cfg(test)]
mod tests;

pub use self::error::SwapOptionError;

use self::keys::Keys;
use folioswap_devices::{Orders, prepared::Uuid};
use folioswap_group::devices::{DeviceContents, DeviceIo};
use folioswap_nbd::{client::Settings as NbdSettings, store::Encryption, uri::Uri};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

/// The highest priority that can be given, as in swapon(8).
pub const PRIORITY_MAX: i16 = i16::MAX;
/// What stands on a device that members share, unless `encrypt` says otherwise.
pub const CONTENTS_DEFAULT: DeviceContents = DeviceContents::Plain;

/// One device as the user asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOption {
    /// The kind, with the keys that only that kind has.
    pub device: DeviceOption,
    /// `prio=P`: 0 to [`PRIORITY_MAX`].
    pub priority: Option<i16>,
    /// The value as the user wrote it, for messages.
    pub text: String,
}

/// The kind of a device, with the keys that only that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceOption {
    /// `zram`: compressed RAM, which grows within the limit.
    Zram,
    /// `ram,size=S`: plain RAM.
    Ram {
        /// The most bytes that it takes.
        size: u64,
        /// `synchronous=yes|no`.
        io: DeviceIo,
        /// `orders=all|0`: the folio orders that it takes in one write.
        orders: Orders,
        /// `encrypt=yes|no`.
        contents: DeviceContents,
    },
    /// `file:TARGET`.
    File {
        /// A directory for a temporary file without a name, or a file or block device that
        /// `folioswap mkswap` has prepared.
        target: PathBuf,
        /// `size=S`: the most bytes that it takes.
        size: Option<u64>,
        /// `discard[=once|pages]`.
        discard: DiscardOption,
        /// `uuid=U`: the UUID that the header of a prepared target must have.
        uuid: Option<Uuid>,
        /// `encrypt=yes|no`.
        contents: DeviceContents,
    },
    /// `nbd://...`, `nbds://...`, `nbd+unix://...`, `nbds+unix://...`.
    Nbd(Box<NbdOption>),
}

/// An export of an NBD server, as the user asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdOption {
    /// The URI of the export.
    pub uri: Uri,
    /// `size=S`: the most bytes that are used of it.
    pub size: Option<u64>,
    /// `discard[=once|pages]`.
    pub discard: DiscardOption,
    /// `encrypt=yes|no`.
    pub encryption: Encryption,
    /// `timeout=SECONDS`: the longest wait for a page.
    pub timeout: Duration,
    /// `connections=N`: the number of connections to the server.
    pub connections: usize,
}

/// When the blocks of a device that hold nothing are given back, as with `--discard` of swapon(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardOption {
    /// No block is given back before the end of the device.
    No,
    /// `discard=once`: all blocks at the start. A new file has none to give back.
    Once,
    /// `discard=pages`: the blocks of clusters when they become free.
    Pages,
    /// `discard`: both at the start and when clusters become free.
    Both,
}

/// Reads one value of `--swap`.
///
/// # Errors
/// [`SwapOptionError`], whose message says what to write instead.
pub fn parse(value: &OsStr) -> Result<SwapOption, SwapOptionError> {
    let mut parts = split(value).into_iter();
    let head = parts.next().unwrap_or_default();
    let (name, target) = match head.iter().position(|&byte| byte == b':') {
        Some(colon) => (&head[..colon], Some(&head[colon + 1..])),
        None => (&head[..], None),
    };
    let without_target = |kind| if target.is_some() { Err(SwapOptionError::Target { kind }) } else { Ok(()) };
    let (device, priority) = match name {
        b"zram" => {
            without_target("zram")?;
            let keys = Keys::read("zram", "prio", parts)?;
            (DeviceOption::Zram, keys.priority)
        }
        b"ram" => {
            without_target("ram")?;
            let keys = Keys::read("ram", "size, prio, encrypt, synchronous and orders", parts)?;
            let size = keys.size.ok_or(SwapOptionError::NoSize)?;
            let (io, orders) = (keys.io.unwrap_or(DeviceIo::Synchronous), keys.orders.unwrap_or(Orders::ALL));
            let contents = keys.contents.unwrap_or(CONTENTS_DEFAULT);
            (DeviceOption::Ram { size, io, orders, contents }, keys.priority)
        }
        b"file" => {
            let target = target.filter(|target| !target.is_empty()).ok_or(SwapOptionError::NoTarget)?;
            let target = PathBuf::from(OsString::from_vec(target.to_vec()));
            let keys = Keys::read("file", "size, prio, discard, encrypt and uuid", parts)?;
            let discard = keys.discard.unwrap_or(DiscardOption::No);
            let contents = keys.contents.unwrap_or(CONTENTS_DEFAULT);
            (
                DeviceOption::File { target, size: keys.size, discard, uuid: keys.uuid, contents },
                keys.priority,
            )
        }
        b"nbd" | b"nbds" | b"nbd+unix" | b"nbds+unix" => {
            let uri_text = text(&head);
            let uri =
                Uri::parse(&uri_text).map_err(|source| SwapOptionError::Uri { text: uri_text, source })?;
            let keys = Keys::read("nbd", "size, prio, discard, encrypt, timeout and connections", parts)?;
            let defaults = NbdSettings::default();
            let option = NbdOption {
                uri,
                size: keys.size,
                discard: keys.discard.unwrap_or(DiscardOption::No),
                encryption: keys.encryption.unwrap_or(Encryption::Random),
                timeout: keys.timeout.map_or(defaults.timeout, Duration::from_secs),
                connections: keys.connections.map_or(defaults.connections, |count| count as usize),
            };
            (DeviceOption::Nbd(Box::new(option)), keys.priority)
        }
        other => return Err(SwapOptionError::UnknownType(text(other))),
    };
    Ok(SwapOption { device, priority, text: text(value.as_bytes()) })
}

/// Bytes of an option as text for a message.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The parts between commas that have no backslash before them; the backslashes are gone.
fn split(value: &OsStr) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = value.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b',' => parts.push(Vec::new()),
            byte => {
                let escaped = (byte == b'\\').then(|| bytes.next_if(|next| matches!(next, b',' | b'\\')));
                if let Some(part) = parts.last_mut() {
                    part.push(escaped.flatten().unwrap_or(byte));
                }
            }
        }
    }
    parts
}

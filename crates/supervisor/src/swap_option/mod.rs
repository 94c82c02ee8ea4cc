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
use folioswap_group::devices::DeviceIo;
use folioswap_nbd::{client::Settings as NbdSettings, store::Encryption, uri::Uri};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

/// Highest priority that can be given; it is in swapon(8) as well.
pub const PRIORITY_MAX: i16 = i16::MAX;

/// One device as the user asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOption {
    /// What kind, and what only that kind has.
    pub device: DeviceOption,
    /// `prio=P`: 0 to [`PRIORITY_MAX`].
    pub priority: Option<i16>,
    /// As it was written, for messages.
    pub text: String,
}

/// What kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceOption {
    /// `zram`: compressed RAM, which grows within the limit.
    Zram,
    /// `ram,size=S`: plain RAM.
    Ram {
        /// Most bytes that it takes.
        size: u64,
        /// `synchronous=yes|no`.
        io: DeviceIo,
        /// `orders=all|0`: the folio orders that it takes in one write.
        orders: Orders,
    },
    /// `file:TARGET`.
    File {
        /// A directory, for a temporary file without a name; or a file or block device that `folioswap mkswap` has prepared.
        target: PathBuf,
        /// `size=S`: most bytes that it takes.
        size: Option<u64>,
        /// `discard...`.
        discard: DiscardOption,
        /// `uuid=U`: what the header of a prepared target must say.
        uuid: Option<Uuid>,
        /// `encrypt=yes|no`.
        encryption: Encryption,
    },
    /// `nbd://...`, `nbds://...`, `nbd+unix://...`, `nbds+unix://...`.
    Nbd(Box<NbdOption>),
}

/// An export of an NBD server, as the user asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdOption {
    /// Where.
    pub uri: Uri,
    /// `size=S`: most bytes that are used of it.
    pub size: Option<u64>,
    /// `discard...`.
    pub discard: DiscardOption,
    /// `encrypt=yes|no`.
    pub encryption: Encryption,
    /// `timeout=SECONDS`: how long a page is waited for.
    pub timeout: Duration,
    /// `connections=N`.
    pub connections: usize,
}

/// When blocks of the device that hold nothing are given back, as `--discard` of swapon(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardOption {
    /// Not before its end.
    No,
    /// `discard=once`: all of it at the start. A new file has nothing to give back.
    Once,
    /// `discard=pages`: clusters when they become free.
    Pages,
    /// `discard`: both.
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
            let keys = Keys::read("ram", "size, prio, synchronous and orders", parts)?;
            let size = keys.size.ok_or(SwapOptionError::NoSize)?;
            let (io, orders) = (keys.io.unwrap_or(DeviceIo::Synchronous), keys.orders.unwrap_or(Orders::ALL));
            (DeviceOption::Ram { size, io, orders }, keys.priority)
        }
        b"file" => {
            let target = target.filter(|target| !target.is_empty()).ok_or(SwapOptionError::NoTarget)?;
            let target = PathBuf::from(OsString::from_vec(target.to_vec()));
            let keys = Keys::read("file", "size, prio, discard, encrypt and uuid", parts)?;
            let discard = keys.discard.unwrap_or(DiscardOption::No);
            let encryption = keys.encryption.unwrap_or(Encryption::None);
            (
                DeviceOption::File { target, size: keys.size, discard, uuid: keys.uuid, encryption },
                keys.priority,
            )
        }
        b"nbd" | b"nbds" | b"nbd+unix" | b"nbds+unix" => {
            let whole = text(&head);
            let uri = Uri::parse(&whole).map_err(|source| SwapOptionError::Uri { text: whole, source })?;
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

/// For a message.
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

//! `KEY[=VALUE]`: the keys that may follow a type, and how the value of each is read.

use super::{DiscardOption, SwapOptionError, text};
use crate::size;
use folioswap_devices::{Orders, prepared::Uuid};
use folioswap_group::{
    devices::{DeviceContents, DeviceIo},
    segment::CLUSTER_BYTES,
};
use folioswap_nbd::store::Encryption;

/// The most seconds and connections that can be asked for.
const TIMEOUT_MAX: u64 = 3600;
const CONNECTIONS_MAX: u64 = 16;

/// The values of all keys, as far as they were given.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) size: Option<u64>,
    pub(super) priority: Option<i16>,
    pub(super) discard: Option<DiscardOption>,
    pub(super) io: Option<DeviceIo>,
    pub(super) orders: Option<Orders>,
    pub(super) uuid: Option<Uuid>,
    /// `encrypt` of a device that members write to by themselves.
    pub(super) contents: Option<DeviceContents>,
    /// `encrypt` of an export.
    pub(super) encryption: Option<Encryption>,
    pub(super) timeout: Option<u64>,
    pub(super) connections: Option<u64>,
}

impl Keys {
    /// Reads the parts behind the type. `known` names the keys of the type, for the message on any
    /// other key.
    pub(super) fn read(
        kind: &'static str,
        known: &'static str,
        parts: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Self, SwapOptionError> {
        let mut keys = Keys::default();
        for part in parts {
            let (key, value) = match part.iter().position(|&byte| byte == b'=') {
                Some(equals) => (&part[..equals], Some(text(&part[equals + 1..]))),
                None => (&part[..], None),
            };
            match (key, kind) {
                (b"prio", _) => once(&mut keys.priority, "prio", priority(value)?)?,
                (b"size", "ram" | "file" | "nbd") => once(&mut keys.size, "size", device_size(value)?)?,
                (b"discard", "file" | "nbd") => once(&mut keys.discard, "discard", discard(value)?)?,
                (b"uuid", "file") => once(&mut keys.uuid, "uuid", uuid(value)?)?,
                (b"orders", "ram") => once(&mut keys.orders, "orders", orders(value)?)?,
                (b"synchronous", "ram") => once(&mut keys.io, "synchronous", synchronous(value)?)?,
                (b"encrypt", "ram" | "file") => {
                    once(&mut keys.contents, "encrypt", encrypt(value)?.contents())?;
                }
                (b"encrypt", "nbd") => once(&mut keys.encryption, "encrypt", encrypt(value)?.encryption())?,
                (b"timeout", "nbd") => {
                    once(&mut keys.timeout, "timeout", number("timeout", value, TIMEOUT_MAX)?)?;
                }
                (b"connections", "nbd") => {
                    once(
                        &mut keys.connections,
                        "connections",
                        number("connections", value, CONNECTIONS_MAX)?,
                    )?;
                }
                (other, _) => return Err(SwapOptionError::UnknownKey { kind, key: text(other), known }),
            }
        }
        Ok(keys)
    }
}

fn once<T>(value_of: &mut Option<T>, key: &'static str, value: T) -> Result<(), SwapOptionError> {
    if value_of.replace(value).is_some() { Err(SwapOptionError::Twice(key)) } else { Ok(()) }
}

fn priority(value: Option<String>) -> Result<i16, SwapOptionError> {
    let value = value.ok_or(SwapOptionError::NoValue("prio"))?;
    // `parse` alone would also take a sign.
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| digits).ok_or(SwapOptionError::Priority(value))
}

fn device_size(value: Option<String>) -> Result<u64, SwapOptionError> {
    let text = value.ok_or(SwapOptionError::NoValue("size"))?;
    match size::parse_swap_max(&text) {
        Ok(bytes) if bytes < CLUSTER_BYTES => Err(SwapOptionError::TooSmall(text)),
        Ok(bytes) => Ok(bytes),
        Err(source) => Err(SwapOptionError::Size { text, source }),
    }
}

fn discard(value: Option<String>) -> Result<DiscardOption, SwapOptionError> {
    match value.as_deref() {
        None => Ok(DiscardOption::Both),
        Some("once") => Ok(DiscardOption::Once),
        Some("pages") => Ok(DiscardOption::Pages),
        Some(other) => Err(SwapOptionError::Discard(other.to_owned())),
    }
}

fn synchronous(value: Option<String>) -> Result<DeviceIo, SwapOptionError> {
    match value.as_deref() {
        None => Err(SwapOptionError::NoValue("synchronous")),
        Some("yes") => Ok(DeviceIo::Synchronous),
        Some("no") => Ok(DeviceIo::Asynchronous),
        Some(other) => Err(SwapOptionError::Synchronous(other.to_owned())),
    }
}

fn orders(value: Option<String>) -> Result<Orders, SwapOptionError> {
    match value.as_deref() {
        None => Err(SwapOptionError::NoValue("orders")),
        Some("all") => Ok(Orders::ALL),
        Some("0") => Ok(Orders::ONLY_ZERO),
        Some(other) => Err(SwapOptionError::Orders(other.to_owned())),
    }
}

fn uuid(value: Option<String>) -> Result<Uuid, SwapOptionError> {
    let value = value.ok_or(SwapOptionError::NoValue("uuid"))?;
    Uuid::try_parse(&value).map_err(|_| SwapOptionError::Uuid(value))
}

/// The value of `encrypt`.
enum Encrypt {
    Yes,
    No,
}

impl Encrypt {
    fn contents(&self) -> DeviceContents {
        match self {
            Encrypt::Yes => DeviceContents::Encrypted,
            Encrypt::No => DeviceContents::Plain,
        }
    }

    fn encryption(&self) -> Encryption {
        match self {
            Encrypt::Yes => Encryption::Random,
            Encrypt::No => Encryption::None,
        }
    }
}

fn encrypt(value: Option<String>) -> Result<Encrypt, SwapOptionError> {
    match value.as_deref() {
        None => Err(SwapOptionError::NoValue("encrypt")),
        Some("yes") => Ok(Encrypt::Yes),
        Some("no") => Ok(Encrypt::No),
        Some(other) => Err(SwapOptionError::Encrypt(other.to_owned())),
    }
}

fn number(key: &'static str, value: Option<String>, most: u64) -> Result<u64, SwapOptionError> {
    let text = value.ok_or(SwapOptionError::NoValue(key))?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && (1..=most).contains(number));
    number.ok_or(SwapOptionError::Number { key, text, most })
}

//! The value of `--swap`: `TYPE[:TARGET][,KEY[=VALUE]]...`, with the words of swapon(8).
//!
//! A comma or a backslash that belongs to the target has a backslash before it.

use crate::size::{self, SizeError};
use folioswap_devices::{Orders, prepared::Uuid};
use folioswap_group::{devices::DeviceIo, segment::CLUSTER_BYTES};
use folioswap_nbd::{
    client::Settings as NbdSettings,
    store::Encryption,
    uri::{Uri, UriError},
};
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

/// Most seconds and connections that can be asked for.
const TIMEOUT_MAX: u64 = 3600;
const CONNECTIONS_MAX: u64 = 16;

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

/// What is wrong with a value of `--swap`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SwapOptionError {
    /// No such type.
    #[error(
        "unknown device type '{0}'; there are zram, ram, file and nbd, e.g. zram,prio=1 or ram,size=1G or file:/var/tmp,size=16G or nbd://HOST/EXPORT"
    )]
    UnknownType(String),
    /// It needs a target.
    #[error("a file needs a directory to lie in, or a prepared file or block device, e.g. file:/var/tmp")]
    NoTarget,
    /// It takes no target.
    #[error("{kind} takes no target: write {kind} instead of {kind}:...")]
    Target {
        /// The type.
        kind: &'static str,
    },
    /// No such key for this type.
    #[error("{kind} does not know '{key}'; it knows {known}")]
    UnknownKey {
        /// The type.
        kind: &'static str,
        /// As given.
        key: String,
        /// What it knows.
        known: &'static str,
    },
    /// A key without its value.
    #[error("{0} lacks its value: write {0}=...")]
    NoValue(&'static str),
    /// A key given twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A priority that is none.
    #[error("prio={0} is no priority: give a number from 0 to {PRIORITY_MAX} (higher is used first)")]
    Priority(String),
    /// A size that is none.
    #[error("size={text}: {source}")]
    Size {
        /// As given.
        text: String,
        /// What is wrong.
        source: SizeError,
    },
    /// Too small a size.
    #[error("size={0} is too small: a device has at least 2M")]
    TooSmall(String),
    /// RAM without a size.
    #[error("ram needs a size, e.g. ram,size=1G")]
    NoSize,
    /// Neither yes nor no.
    #[error("synchronous={0}: write synchronous=yes or synchronous=no")]
    Synchronous(String),
    /// Neither all nor 0.
    #[error("orders={0}: write orders=all, or orders=0 for single pages only")]
    Orders(String),
    /// No UUID.
    #[error(
        "uuid={0} is no UUID: write it as `folioswap mkswap` printed it, e.g. uuid=01234567-89ab-cdef-0123-456789abcdef"
    )]
    Uuid(String),
    /// Neither yes nor no.
    #[error("encrypt={0}: write encrypt=yes or encrypt=no")]
    Encrypt(String),
    /// A number that is none, or out of bounds.
    #[error("{key}={text}: give a whole number from 1 to {most}")]
    Number {
        /// The key.
        key: &'static str,
        /// As given.
        text: String,
        /// The highest.
        most: u64,
    },
    /// No place of an export.
    #[error("{text}: {source}")]
    Uri {
        /// As given.
        text: String,
        /// What is wrong.
        source: UriError,
    },
    /// No such way to discard.
    #[error("discard={0}: write discard, discard=once or discard=pages")]
    Discard(String),
}

/// Everything that may stand behind a type, as far as it was given.
#[derive(Default)]
struct Keys {
    size: Option<u64>,
    priority: Option<i16>,
    discard: Option<DiscardOption>,
    io: Option<DeviceIo>,
    orders: Option<Orders>,
    uuid: Option<Uuid>,
    encryption: Option<Encryption>,
    timeout: Option<u64>,
    connections: Option<u64>,
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
            let keys = Keys::read("file", "size, prio, discard and uuid", parts)?;
            let discard = keys.discard.unwrap_or(DiscardOption::No);
            (DeviceOption::File { target, size: keys.size, discard, uuid: keys.uuid }, keys.priority)
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

impl Keys {
    fn read(
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
                (b"encrypt", "nbd") => once(&mut keys.encryption, "encrypt", encryption(value)?)?,
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

fn once<T>(place: &mut Option<T>, key: &'static str, value: T) -> Result<(), SwapOptionError> {
    if place.replace(value).is_some() { Err(SwapOptionError::Twice(key)) } else { Ok(()) }
}

fn priority(value: Option<String>) -> Result<i16, SwapOptionError> {
    let value = value.ok_or(SwapOptionError::NoValue("prio"))?;
    // A sign or a blank is no part of a priority.
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

fn encryption(value: Option<String>) -> Result<Encryption, SwapOptionError> {
    match value.as_deref() {
        None => Err(SwapOptionError::NoValue("encrypt")),
        Some("yes") => Ok(Encryption::Random),
        Some("no") => Ok(Encryption::None),
        Some(other) => Err(SwapOptionError::Encrypt(other.to_owned())),
    }
}

fn number(key: &'static str, value: Option<String>, most: u64) -> Result<u64, SwapOptionError> {
    let text = value.ok_or(SwapOptionError::NoValue(key))?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && (1..=most).contains(number));
    number.ok_or(SwapOptionError::Number { key, text, most })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Read = (DeviceOption, Option<i16>);

    fn read(value: &str) -> Result<Read, SwapOptionError> {
        parse(OsStr::new(value)).map(|option| (option.device, option.priority))
    }

    fn file(target: &str, size: Option<u64>, discard: DiscardOption, priority: Option<i16>) -> Read {
        (DeviceOption::File { target: target.into(), size, discard, uuid: None }, priority)
    }

    #[test]
    fn what_the_manual_shows_is_understood() {
        let zram = |priority| (DeviceOption::Zram, priority);
        let orders = Orders::ALL;
        let ram = |size, io| (DeviceOption::Ram { size, io, orders }, None);
        assert_eq!(read("zram"), Ok(zram(None)));
        assert_eq!(read("zram,prio=0"), Ok(zram(Some(0))));
        assert_eq!(read("zram,prio=32767"), Ok(zram(Some(32767))));
        assert_eq!(read("ram,size=1G"), Ok(ram(1 << 30, DeviceIo::Synchronous)));
        assert_eq!(read("ram,synchronous=no,size=4M"), Ok(ram(4 << 20, DeviceIo::Asynchronous)));
        assert_eq!(read("ram,size=2M,synchronous=yes"), Ok(ram(2 << 20, DeviceIo::Synchronous)));
        let single =
            DeviceOption::Ram { size: 2 << 20, io: DeviceIo::Synchronous, orders: Orders::ONLY_ZERO };
        assert_eq!(read("ram,size=2M,orders=0"), Ok((single, None)));
        assert_eq!(read("ram,size=2M,orders=all"), Ok(ram(2 << 20, DeviceIo::Synchronous)));
        let named = read("file:/swap,uuid=01234567-89AB-cdef-0123-456789abcdef").expect("a UUID");
        let uuid = Some(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        let (target, size, discard) = ("/swap".into(), None, DiscardOption::No);
        assert_eq!(named, (DeviceOption::File { target, size, discard, uuid }, None));
        assert_eq!(read("file:/var/tmp"), Ok(file("/var/tmp", None, DiscardOption::No, None)));
        let all = read("file:/a b,discard=pages,prio=7,size=1.5G");
        assert_eq!(all, Ok(file("/a b", Some(3 << 29), DiscardOption::Pages, Some(7))));
        assert_eq!(read("file:.,discard"), Ok(file(".", None, DiscardOption::Both, None)));
        assert_eq!(read("file:.,discard=once"), Ok(file(".", None, DiscardOption::Once, None)));
    }

    #[test]
    fn an_export_is_named_by_its_uri() {
        let nbd = |value| match read(value) {
            Ok((DeviceOption::Nbd(option), priority)) => (*option, priority),
            other => panic!("{other:?}"),
        };
        let (option, priority) = nbd("nbd://host:7/export,prio=0");
        assert_eq!((option.uri.to_string(), priority), ("nbd://host:7/export".into(), Some(0)));
        assert_eq!((option.encryption, option.discard), (Encryption::Random, DiscardOption::No));
        let (option, _) =
            nbd(r"nbd+unix:///?socket=/a\,b,encrypt=no,timeout=5,connections=2,discard,size=1G");
        assert_eq!(option.uri.address, folioswap_nbd::uri::Address::Unix("/a,b".into()));
        assert_eq!((option.encryption, option.size), (Encryption::None, Some(1 << 30)));
        assert_eq!((option.timeout.as_secs(), option.connections), (5, 2));
        use SwapOptionError as E;
        let number = |key, text: &str, most| E::Number { key, text: text.into(), most };
        for (value, error) in [
            ("nbd", E::Uri { text: "nbd".into(), source: UriError::Scheme }),
            ("nbd:host", E::Uri { text: "nbd:host".into(), source: UriError::Scheme }),
            ("nbd+unix:///x", E::Uri { text: "nbd+unix:///x".into(), source: UriError::NoSocket }),
            ("nbd://h/,encrypt=maybe", E::Encrypt("maybe".into())),
            ("nbd://h/,encrypt", E::NoValue("encrypt")),
            ("nbd://h/,timeout=0", number("timeout", "0", 3600)),
            ("nbd://h/,timeout=+1", number("timeout", "+1", 3600)),
            ("nbd://h/,connections=17", number("connections", "17", 16)),
            (
                "file:.,encrypt=yes",
                E::UnknownKey { kind: "file", key: "encrypt".into(), known: "size, prio, discard and uuid" },
            ),
        ] {
            assert_eq!(read(value), Err(error), "{value:?}");
        }
    }

    #[test]
    fn a_path_may_hold_anything() {
        assert_eq!(read(r"file:/a\,b\\c:d=e"), Ok(file(r"/a,b\c:d=e", None, DiscardOption::No, None)));
        assert_eq!(read(r"file:/a\b\"), Ok(file(r"/a\b\", None, DiscardOption::No, None)));
        let odd = parse(OsStr::from_bytes(b"file:/\xff\xfe,prio=1")).expect("a path");
        let DeviceOption::File { target, .. } = odd.device else { panic!("a file") };
        assert_eq!(target.as_os_str().as_bytes(), b"/\xff\xfe");
    }

    #[test]
    fn each_mistake_has_its_message() {
        use SwapOptionError as E;
        let unknown = |kind, key: &str, known| E::UnknownKey { kind, key: key.into(), known };
        for (value, error) in [
            ("", E::UnknownType(String::new())),
            ("tape", E::UnknownType("tape".into())),
            ("ZRAM", E::UnknownType("ZRAM".into())),
            ("zram prio=1", E::UnknownType("zram prio=1".into())),
            ("file", E::NoTarget),
            ("file:,size=1G", E::NoTarget),
            ("zram:", E::Target { kind: "zram" }),
            ("ram:x,size=1G", E::Target { kind: "ram" }),
            ("zram,size=1G", unknown("zram", "size", "prio")),
            ("zram,", unknown("zram", "", "prio")),
            ("zram,prio=1,colour=red", unknown("zram", "colour", "prio")),
            ("ram,size=1G,discard", unknown("ram", "discard", "size, prio, synchronous and orders")),
            ("file:.,synchronous=yes", unknown("file", "synchronous", "size, prio, discard and uuid")),
            ("zram,prio", E::NoValue("prio")),
            ("ram,size", E::NoValue("size")),
            ("ram,size=1G,synchronous", E::NoValue("synchronous")),
            ("zram,prio=1,prio=1", E::Twice("prio")),
            ("ram,size=1G,size=1G", E::Twice("size")),
            ("file:.,discard,discard=once", E::Twice("discard")),
            ("zram,prio=", E::Priority(String::new())),
            ("zram,prio=-1", E::Priority("-1".into())),
            ("zram,prio=+1", E::Priority("+1".into())),
            ("zram,prio=32768", E::Priority("32768".into())),
            ("zram,prio=1.5", E::Priority("1.5".into())),
            ("ram", E::NoSize),
            ("ram,prio=1", E::NoSize),
            ("ram,size=0", E::TooSmall("0".into())),
            ("file:.,size=1M", E::TooSmall("1M".into())),
            ("ram,size=much", E::Size { text: "much".into(), source: SizeError::Unreadable }),
            ("ram,size=99999999999G", E::Size { text: "99999999999G".into(), source: SizeError::Overflow }),
            ("ram,size=1G,synchronous=maybe", E::Synchronous("maybe".into())),
            ("ram,size=1G,orders=9", E::Orders("9".into())),
            ("ram,size=1G,orders", E::NoValue("orders")),
            ("file:.,uuid=1234", E::Uuid("1234".into())),
            ("file:.,uuid", E::NoValue("uuid")),
            ("zram,uuid=1", unknown("zram", "uuid", "prio")),
            ("file:.,discard=never", E::Discard("never".into())),
        ] {
            assert_eq!(read(value), Err(error), "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(OsStr::from_bytes(&value));
        }

        #[test]
        fn nothing_that_looks_like_a_device_makes_it_panic(
            value in "(zram|ram|file|nbd)?:?[a-z/\\\\,=]{0,8}(,(prio|size|discard|synchronous|orders|uuid)=?[-+0-9a-zA-Z.\\\\]{0,24}){0,4}"
        ) {
            let _ = read(&value);
        }

        #[test]
        fn what_is_written_is_read(
            target in proptest::collection::vec(1..=255_u8, 1..40), priority in 0..=PRIORITY_MAX, clusters in 1..1_u64 << 30
        ) {
            let mut value = b"file:".to_vec();
            for &byte in &target {
                value.extend((matches!(byte, b',' | b'\\')).then_some(b'\\'));
                value.push(byte);
            }
            value.extend(format!(",prio={priority},size={}", clusters * CLUSTER_BYTES).bytes());
            let expected = DeviceOption::File {
                target: OsString::from_vec(target).into(),
                size: Some(clusters * CLUSTER_BYTES),
                discard: DiscardOption::No,
                uuid: None,
            };
            let found = parse(OsStr::from_bytes(&value)).map(|option| (option.device, option.priority));
            prop_assert_eq!(found, Ok((expected, Some(priority))));
        }
    }
}

//! What people write: values of `--swap`, addresses of exports, sizes, names of groups, devices of
//! a replay. A text is refused with a reason, or is understood within the bounds of its kind; what
//! is understood can be written so that it means the same.
#![no_main]

use folioswap_devices::Orders;
use folioswap_group::devices::{DeviceContents, DeviceIo};
use folioswap_group::segment::CLUSTER_BYTES;
use folioswap_lab::replay::Device;
use folioswap_nbd::store::Encryption;
use folioswap_nbd::uri::{EXPORT_MAX, Uri};
use folioswap_supervisor::ipc::description::parse_name;
use folioswap_supervisor::size::{self, LIMIT_MIN};
use folioswap_supervisor::swap_option::{self, DeviceOption, DiscardOption, SwapOption};
use libfuzzer_sys::fuzz_target;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes of a part of an option, with its commas and backslashes escaped.
fn escape(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .flat_map(|&byte| if matches!(byte, b',' | b'\\') { vec![b'\\', byte] } else { vec![byte] })
        .collect()
}

fn add(text: &mut Vec<u8>, key: &str, value: impl std::fmt::Display) {
    text.extend(format!(",{key}={value}").bytes());
}

fn add_discard(text: &mut Vec<u8>, discard: DiscardOption) {
    text.extend(match discard {
        DiscardOption::No => &b""[..],
        DiscardOption::Once => b",discard=once",
        DiscardOption::Pages => b",discard=pages",
        DiscardOption::Both => b",discard",
    });
}

/// The option as a text that names each key.
fn written(option: &SwapOption) -> Vec<u8> {
    let contents = |contents| if contents == DeviceContents::Encrypted { "yes" } else { "no" };
    let mut text = Vec::new();
    match &option.device {
        DeviceOption::Zram => text.extend(b"zram"),
        DeviceOption::Ram { size, io, orders, contents: kind } => {
            text.extend(b"ram");
            add(&mut text, "size", size);
            add(&mut text, "synchronous", if *io == DeviceIo::Synchronous { "yes" } else { "no" });
            add(&mut text, "orders", if *orders == Orders::ALL { "all" } else { "0" });
            add(&mut text, "encrypt", contents(*kind));
        }
        DeviceOption::File { target, size, discard, uuid, contents: kind } => {
            text.extend(b"file:");
            text.extend(escape(target.as_os_str().as_bytes()));
            size.iter().for_each(|size| add(&mut text, "size", size));
            uuid.iter().for_each(|uuid| add(&mut text, "uuid", uuid));
            add_discard(&mut text, *discard);
            add(&mut text, "encrypt", contents(*kind));
        }
        DeviceOption::Nbd(nbd) => {
            text.extend(escape(nbd.uri.to_string().as_bytes()));
            nbd.size.iter().for_each(|size| add(&mut text, "size", size));
            add_discard(&mut text, nbd.discard);
            add(&mut text, "encrypt", if nbd.encryption == Encryption::Random { "yes" } else { "no" });
            add(&mut text, "timeout", nbd.timeout.as_secs());
            add(&mut text, "connections", nbd.connections);
        }
    }
    option.priority.iter().for_each(|priority| add(&mut text, "prio", priority));
    text
}

fn swap(bytes: &[u8]) {
    let option = match swap_option::parse(OsStr::from_bytes(bytes)) {
        Ok(option) => option,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(option.priority.is_none_or(|priority| priority >= 0));
    assert_eq!(option.text, String::from_utf8_lossy(bytes));
    let size = match &option.device {
        DeviceOption::Zram => None,
        DeviceOption::Ram { size, .. } => Some(*size),
        DeviceOption::File { size, target, .. } => {
            assert!(!target.as_os_str().is_empty());
            *size
        }
        DeviceOption::Nbd(nbd) => {
            assert!((1..=16).contains(&nbd.connections) && (1..=3600).contains(&nbd.timeout.as_secs()));
            // An address is shown without its parameters of TLS.
            if nbd.uri.tls.is_some() {
                return;
            }
            nbd.size
        }
    };
    assert!(size.is_none_or(|size| size >= CLUSTER_BYTES));
    let text = written(&option);
    let again = swap_option::parse(OsStr::from_bytes(&text)).expect("what is written is understood");
    assert!(again.device == option.device && again.priority == option.priority, "{option:?} {again:?}");
}

fn address(text: &str) {
    let Ok(uri) = Uri::parse(text) else {
        return;
    };
    assert!(uri.export.len() <= EXPORT_MAX);
    let shown = uri.to_string();
    assert!(!shown.contains(char::is_control), "{shown:?}");
    if uri.tls.is_none() {
        assert_eq!(Uri::parse(&shown), Ok(uri));
    }
}

/// The bytes of digits with one of the units K to E, as all sizes are meant.
fn plain_size(text: &str) -> Option<u64> {
    let at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let number: u128 = digits.parse().ok()?;
    let power = match unit {
        "" => 0,
        _ => 1 + ["K", "M", "G", "T", "P", "E"].iter().position(|known| *known == unit)? as u32,
    };
    number.checked_mul(1 << (10 * power)).and_then(|bytes| bytes.try_into().ok())
}

fn sizes(text: &str) {
    let parsed = size::parse_swap_max(text).ok();
    if let Some(plain) = plain_size(text) {
        assert_eq!(parsed, Some(plain), "{text:?}");
    }
    assert_eq!(size::parse_limit(text).ok(), parsed.filter(|bytes| *bytes >= LIMIT_MIN));
    let Some(bytes) = parsed else {
        return;
    };
    // Figures for people can be read again, and are near.
    let near = |shown: &str, part: f64| {
        let read = size::parse_swap_max(shown).unwrap_or(u64::MAX) as f64;
        assert!((read - bytes as f64).abs() <= part * bytes as f64 + 1024.0 * part, "{bytes}: {shown}");
    };
    near(&size::show(bytes), 0.06);
    near(&size::short(bytes), 0.6);
    if bytes < 1 << 60 {
        let suggested = size::parse_limit(&size::suggest(bytes)).expect("a limit");
        assert!(suggested > bytes && suggested <= bytes + bytes / 8 + (9 << 20));
        let about = size::parse_swap_max(&size::about(bytes)).expect("a size");
        assert!((bytes..=bytes + bytes / 10 + (1 << 20)).contains(&about));
    }
}

fuzz_target!(|data: &[u8]| {
    swap(data);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    address(text);
    sizes(text);
    if let Ok(name) = parse_name(text) {
        assert!(name == text && (1..=64).contains(&name.len()) && name.parse::<u64>().is_err());
    }
    if let Ok(device) = Device::parse(text, |size| size::parse_swap_max(size).ok()) {
        assert!(device.pages.is_none_or(|pages| (2..=1 << 32).contains(&pages)));
        assert!(device.priority.is_none_or(|priority| priority >= 0));
    }
});

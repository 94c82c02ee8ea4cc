//! Every way to write a device, and every mistake with its message.

use super::*;
use crate::size::SizeError;
use folioswap_devices::prepared::Uuid;
use folioswap_group::segment::CLUSTER_BYTES;
use folioswap_nbd::uri::UriError;
use proptest::prelude::*;

type Read = (DeviceOption, Option<i16>);

fn read(value: &str) -> Result<Read, SwapOptionError> {
    parse(OsStr::new(value)).map(|option| (option.device, option.priority))
}

fn file(target: &str, size: Option<u64>, discard: DiscardOption, priority: Option<i16>) -> Read {
    (
        DeviceOption::File {
            target: target.into(),
            size,
            discard,
            uuid: None,
            contents: DeviceContents::Plain,
        },
        priority,
    )
}

#[test]
fn what_the_manual_shows_is_understood() {
    let zram = |priority| (DeviceOption::Zram, priority);
    let orders = Orders::ALL;
    let ram = |size, io| (DeviceOption::Ram { size, io, orders, contents: DeviceContents::Plain }, None);
    assert_eq!(read("zram"), Ok(zram(None)));
    assert_eq!(read("zram,prio=0"), Ok(zram(Some(0))));
    assert_eq!(read("zram,prio=32767"), Ok(zram(Some(32767))));
    assert_eq!(read("ram,size=1G"), Ok(ram(1 << 30, DeviceIo::Synchronous)));
    assert_eq!(read("ram,synchronous=no,size=4M"), Ok(ram(4 << 20, DeviceIo::Asynchronous)));
    assert_eq!(read("ram,size=2M,synchronous=yes"), Ok(ram(2 << 20, DeviceIo::Synchronous)));
    let single = DeviceOption::Ram {
        size: 2 << 20,
        io: DeviceIo::Synchronous,
        orders: Orders::ONLY_ZERO,
        contents: DeviceContents::Plain,
    };
    assert_eq!(read("ram,size=2M,orders=0"), Ok((single, None)));
    assert_eq!(read("ram,size=2M,orders=all"), Ok(ram(2 << 20, DeviceIo::Synchronous)));
    let named = read("file:/swap,uuid=01234567-89AB-cdef-0123-456789abcdef").expect("a UUID");
    let uuid = Some(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
    let (target, size, discard) = ("/swap".into(), None, DiscardOption::No);
    assert_eq!(
        named,
        (DeviceOption::File { target, size, discard, uuid, contents: DeviceContents::Plain }, None)
    );
    assert_eq!(read("file:/var/tmp"), Ok(file("/var/tmp", None, DiscardOption::No, None)));
    let all = read("file:/a b,discard=pages,prio=7,size=1.5G");
    assert_eq!(all, Ok(file("/a b", Some(3 << 29), DiscardOption::Pages, Some(7))));
    assert_eq!(read("file:.,discard"), Ok(file(".", None, DiscardOption::Both, None)));
    assert_eq!(read("file:.,discard=once"), Ok(file(".", None, DiscardOption::Once, None)));
    assert_eq!(read("file:.,encrypt=no"), Ok(file(".", None, DiscardOption::No, None)));
    let sealed = read("file:.,encrypt=yes").expect("a file").0;
    assert!(matches!(sealed, DeviceOption::File { contents: DeviceContents::Encrypted, .. }));
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
    let (option, _) = nbd(r"nbd+unix:///?socket=/a\,b,encrypt=no,timeout=5,connections=2,discard,size=1G");
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
        ("file:.,encrypt=maybe", E::Encrypt("maybe".into())),
        ("ram,size=2M,encrypt=maybe", E::Encrypt("maybe".into())),
        ("zram,encrypt=yes", E::UnknownKey { kind: "zram", key: "encrypt".into(), known: "prio" }),
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
        ("ram,size=1G,discard", unknown("ram", "discard", "size, prio, encrypt, synchronous and orders")),
        ("file:.,synchronous=yes", unknown("file", "synchronous", "size, prio, discard, encrypt and uuid")),
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
            contents: DeviceContents::Plain,
        };
        let found = parse(OsStr::from_bytes(&value)).map(|option| (option.device, option.priority));
        prop_assert_eq!(found, Ok((expected, Some(priority))));
    }
}

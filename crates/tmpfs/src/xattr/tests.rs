use super::*;
use crate::limits::Memory;

fn free() -> Charge {
    Memory::default().charge_anyway(0)
}

#[test]
fn modes_are_kept() {
    let mut all = Xattrs::default();
    assert_eq!(all.set(b"user.a", b"1", SetMode::Replace, free()), Err(Errno::NODATA));
    assert_eq!(all.set(b"user.a", b"1", SetMode::Create, free()), Ok(()));
    assert_eq!(all.set(b"user.a", b"2", SetMode::Create, free()), Err(Errno::EXIST));
    assert_eq!(all.get(b"user.a"), Some(&b"1"[..]));
    assert_eq!(all.set(b"user.a", b"", SetMode::Any, free()), Ok(()));
    assert_eq!(all.get(b"user.a"), Some(&b""[..]));
    assert_eq!(all.remove(b"user.a"), Ok(()));
    assert_eq!(all.remove(b"user.a"), Err(Errno::NODATA));
    assert!(all.0.is_empty(), "nothing is left behind");
}

#[test]
fn only_known_families() {
    let mut all = Xattrs::default();
    for name in [&b"system.posix_acl_access"[..], b"user", b"other.x", b""] {
        assert_eq!(all.set(name, b"", SetMode::Any, free()), Err(Errno::OPNOTSUPP));
    }
}

#[test]
fn trusted_names_are_hidden_from_others() {
    let mut all = Xattrs::default();
    all.set(b"user.a", b"", SetMode::Any, free()).expect("set");
    all.set(b"trusted.b", b"", SetMode::Any, free()).expect("set");
    all.set(b"security.capability", b"x", SetMode::Any, free()).expect("set");
    assert_eq!(all.names(TrustedNames::Hidden), b"security.capability\0user.a\0");
    assert_eq!(all.remove_capabilities(), Ok(()));
    assert_eq!(all.remove_capabilities(), Err(Errno::NODATA));
    assert_eq!(all.names(TrustedNames::Shown), b"trusted.b\0user.a\0");
}

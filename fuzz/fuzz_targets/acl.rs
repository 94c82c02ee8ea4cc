//! Lists of access rights that a program sets as extended attributes of a file in a mount. A value
//! is refused, or is a list with the same value again. The list that follows from another mode is
//! valid, and says that mode.
#![no_main]

use folioswap_tmpfs::acl::{Acl, Extent};
use libfuzzer_sys::fuzz_target;

/// An owner, a group and others at least, 8 bytes each behind the version.
const LEAST: usize = 4 + 3 * 8;

fn check(acl: &Acl) {
    assert_eq!(Acl::parse(&acl.value()).as_ref(), Ok(&Some(acl.clone())));
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, value)) = data.split_first_chunk::<2>() else {
        return;
    };
    let mode = u16::from_le_bytes(*mode);
    let Ok(Some(acl)) = Acl::parse(value) else {
        return;
    };
    assert_eq!(acl.value(), value);
    check(&acl);
    let (bits, extent) = acl.permissions();
    assert!(bits <= 0o777);
    assert_eq!(extent == Extent::Mode, value.len() == LEAST);
    let changed = acl.with_mode(mode);
    check(&changed);
    assert_eq!(changed.permissions(), (mode & 0o777, extent));
    // A change to the mode that holds changes nothing.
    assert_eq!(acl.with_mode(bits), acl);
    let (inherited, made) = acl.inherited(mode);
    check(&inherited);
    assert_eq!(inherited.permissions(), (made & 0o777, extent));
    // Nobody may do more than the directory's list and the mode allow.
    assert!(made & !mode == 0 && made & 0o777 & !bits == 0 && made & !0o777 == mode & !0o777);
});

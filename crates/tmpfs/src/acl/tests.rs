use super::*;
use proptest::prelude::*;

const NOBODY: u32 = u32::MAX;

fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        value.extend(id.to_le_bytes());
    }
    value
}

fn acl(entries: &[(u16, u16, u32)]) -> Acl {
    Acl::parse(&value(entries)).expect("valid").expect("some entries")
}

const MINIMAL: [(u16, u16, u32); 3] = [(1, 6, NOBODY), (4, 4, NOBODY), (0x20, 0, NOBODY)];
const NAMED: [(u16, u16, u32); 6] =
    [(1, 7, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (8, 1, 7), (0x10, 6, NOBODY), (0x20, 4, NOBODY)];

#[test]
fn what_is_no_list_is_refused() {
    assert_eq!(Acl::parse(&[]), Err(Errno::INVAL));
    assert_eq!(Acl::parse(&[2, 0, 0]), Err(Errno::INVAL));
    assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(Errno::OPNOTSUPP));
    assert_eq!(Acl::parse(&value(&[])), Ok(None));
    let mut cut = value(&MINIMAL);
    cut.pop();
    assert_eq!(Acl::parse(&cut), Err(Errno::INVAL));
    for missing in 0..3 {
        let mut entries = MINIMAL.to_vec();
        entries.remove(missing);
        assert_eq!(Acl::parse(&value(&entries)), Err(Errno::INVAL), "without entry {missing}");
    }
    for (at, wrong) in [
        (1, (2, 6, 1000)),
        (1, (1, 6, NOBODY)),
        (3, (0x20, 0, NOBODY)),
        (0, (4, 4, NOBODY)),
        (2, (8, 4, 5)),
        (2, (3, 4, NOBODY)),
    ] {
        let mut entries = MINIMAL.to_vec();
        entries.insert(at, wrong);
        assert_eq!(Acl::parse(&value(&entries)), Err(Errno::INVAL), "{wrong:?} at {at}");
    }
    let mut entries = MINIMAL;
    entries[0].1 = 8;
    assert_eq!(Acl::parse(&value(&entries)), Err(Errno::INVAL), "more than rwx");
}

#[test]
fn a_list_and_a_mode_keep_together() {
    assert_eq!(acl(&MINIMAL).permissions(), (0o640, Extent::Mode));
    assert_eq!(acl(&NAMED).permissions(), (0o764, Extent::BeyondMode));
    let changed = acl(&NAMED).with_mode(0o4710);
    assert_eq!(changed.permissions(), (0o710, Extent::BeyondMode));
    assert_eq!(changed.0[2].permissions, 5, "the group's own entry stays, behind the mask");
    assert_eq!(changed.0[1].permissions, 6, "and so do those of others");
    assert_eq!(acl(&MINIMAL).with_mode(0o751).0[1].permissions, 5);
}

#[test]
fn what_is_made_gets_no_more_than_was_asked_for() {
    let (access, mode) = acl(&NAMED).inherited(0o1640);
    assert_eq!(mode, 0o1640);
    assert_eq!(access.0[4].permissions, 4, "the mask");
    assert_eq!(access.0[2].permissions, 5);
    let (access, mode) = acl(&MINIMAL).inherited(0o777);
    assert_eq!((access, mode), (acl(&MINIMAL), 0o640));
}

proptest! {
    #[test]
    fn what_was_parsed_is_written_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(Some(acl)) = Acl::parse(&bytes) {
            prop_assert_eq!(acl.value(), bytes);
        }
    }

    #[test]
    fn valid_lists_stay_valid(
        users in prop::collection::vec((0u16..8, 0u32..9), 0..4),
        groups in prop::collection::vec((0u16..8, 0u32..9), 0..4),
        others in prop::array::uniform4(0u16..8),
        mode in 0u16..0o10000,
    ) {
        let mut entries = vec![(1, others[0], NOBODY)];
        entries.extend(users.iter().map(|&(permissions, id)| (2, permissions, id)));
        entries.push((4, others[1], NOBODY));
        entries.extend(groups.iter().map(|&(permissions, id)| (8, permissions, id)));
        entries.push((0x10, others[2], NOBODY));
        entries.push((0x20, others[3], NOBODY));
        let list = acl(&entries);
        let changed = list.with_mode(mode);
        prop_assert!(changed.is_valid());
        prop_assert_eq!(changed.permissions().0, mode & 0o777);
        let (access, inherited) = list.inherited(mode);
        prop_assert!(access.is_valid());
        prop_assert_eq!(inherited, mode & (list.permissions().0 | !0o777));
        prop_assert_eq!(access.permissions().0, inherited & 0o777);
        prop_assert_eq!(Acl::parse(&list.value()), Ok(Some(list)));
    }
}

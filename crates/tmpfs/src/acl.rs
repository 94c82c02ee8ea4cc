//! POSIX access control lists, as the kernel's tmpfs has them (acl(5)): what they say, as pure functions. Who may what is decided by the
//! kernel, which asks for the lists as extended attributes (FUSE_POSIX_ACL); here is how a list and the mode of an inode keep together,
//! and what a new inode inherits.

use rustix::io::Errno;

/// The attribute that holds the list by which access is decided.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the list that what is made in a directory inherits.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The only version of the format there is.
const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
/// Permissions of an entry: read, write, execute.
const RWX: u16 = 0o7;

/// Which of the two lists of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Decides about access.
    Access,
    /// Is inherited; of directories only.
    Default,
}

impl Which {
    /// The list that this attribute holds, if it is one.
    pub fn of(name: &[u8]) -> Option<Which> {
        match name {
            ACCESS => Some(Which::Access),
            DEFAULT => Some(Which::Default),
            _ => None,
        }
    }

    /// The attribute.
    pub fn name(self) -> &'static [u8] {
        match self {
            Which::Access => ACCESS,
            Which::Default => DEFAULT,
        }
    }
}

/// Whom an entry is for, in the order in which entries come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner,
    User,
    OwnerGroup,
    Group,
    Mask,
    Other,
}

impl Tag {
    const ALL: [(Tag, u16); 6] = [
        (Tag::Owner, 0x01),
        (Tag::User, 0x02),
        (Tag::OwnerGroup, 0x04),
        (Tag::Group, 0x08),
        (Tag::Mask, 0x10),
        (Tag::Other, 0x20),
    ];

    fn of(number: u16) -> Option<Tag> {
        Tag::ALL.into_iter().find(|&(_, known)| known == number).map(|(tag, _)| tag)
    }

    fn number(self) -> u16 {
        Tag::ALL[self as usize].1
    }

    /// Is it for one user or group of many?
    fn is_named(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
    /// Of a named user or group; the format has a number with each.
    id: u32,
}

/// Does the mode say all that a list says?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The list may be dropped.
    Mode,
    /// It has more entries than the mode has bits.
    BeyondMode,
}

/// A valid list: one entry each for owner, group and others, and a mask where users or groups are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// From the value of an attribute; `None` for a list without entries, which is the same as none.
    ///
    /// # Errors
    /// `EINVAL`: it is no list, or not a valid one; `EOPNOTSUPP`: of another version.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>, Errno> {
        let (header, rest) = value.split_first_chunk::<HEADER>().ok_or(Errno::INVAL)?;
        if u32::from_le_bytes(*header) != VERSION {
            return Err(Errno::OPNOTSUPP);
        }
        let (entries, left) = rest.as_chunks::<ENTRY>();
        if !left.is_empty() {
            return Err(Errno::INVAL);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entry = |&[a, b, c, d, id @ ..]: &[u8; ENTRY]| {
            let tag = Tag::of(u16::from_le_bytes([a, b])).ok_or(Errno::INVAL)?;
            let permissions = u16::from_le_bytes([c, d]);
            Ok(Entry { tag, permissions, id: u32::from_le_bytes(id) })
        };
        let acl = Acl(entries.iter().map(entry).collect::<Result<_, Errno>>()?);
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Errno::INVAL) }
    }

    /// As the value of an attribute.
    pub fn value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&entry.tag.number().to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// In order; one of each that is not named, the mask only and certainly where somebody is.
    fn is_valid(&self) -> bool {
        let count = |tag: Tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let names_somebody = self.0.iter().any(|entry| entry.tag.is_named());
        self.0.iter().all(|entry| entry.permissions & !RWX == 0)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [Tag::Owner, Tag::OwnerGroup, Tag::Other].into_iter().all(|tag| count(tag) == 1)
            && count(Tag::Mask) <= 1
            && (count(Tag::Mask) == 1 || !names_somebody)
    }

    /// The nine permission bits of the mode that goes with it, of which those of the group are the mask's where there is one.
    pub fn permissions(&self) -> (u16, Extent) {
        let (mut bits, mut extent) = (0, Extent::Mode);
        for entry in &self.0 {
            match entry.tag {
                Tag::Owner => bits |= entry.permissions << 6,
                Tag::OwnerGroup => bits |= entry.permissions << 3,
                Tag::Other => bits |= entry.permissions,
                Tag::Mask => {
                    bits = bits & !(RWX << 3) | entry.permissions << 3;
                    extent = Extent::BeyondMode;
                }
                Tag::User | Tag::Group => extent = Extent::BeyondMode,
            }
        }
        (bits, extent)
    }

    /// The same list after chmod(2) to this mode.
    pub fn with_mode(&self, mode: u16) -> Acl {
        self.changed(|tag, _| match tag {
            ClassOf::Owner => mode >> 6 & RWX,
            ClassOf::Group => mode >> 3 & RWX,
            ClassOf::Other => mode & RWX,
        })
    }

    /// What an inode that is made with this mode, in a directory with this default list, gets: its access list, and its mode. (The umask
    /// does not count where there is a default list.)
    pub fn inherited(&self, mode: u16) -> (Acl, u16) {
        let access = self.changed(|class, permissions| match class {
            ClassOf::Owner => permissions & mode >> 6,
            ClassOf::Group => permissions & mode >> 3,
            ClassOf::Other => permissions & mode,
        });
        let (bits, _) = access.permissions();
        (access, mode & !0o777 | bits)
    }

    /// With other permissions in the three entries that the mode stands for.
    fn changed(&self, permissions: impl Fn(ClassOf, u16) -> u16) -> Acl {
        let has_mask = self.0.iter().any(|entry| entry.tag == Tag::Mask);
        let change = |entry: &Entry| {
            let class = match entry.tag {
                Tag::Owner => ClassOf::Owner,
                Tag::Other => ClassOf::Other,
                Tag::Mask => ClassOf::Group,
                Tag::OwnerGroup if !has_mask => ClassOf::Group,
                _ => return *entry,
            };
            Entry { permissions: permissions(class, entry.permissions), ..*entry }
        };
        Acl(self.0.iter().map(change).collect())
    }
}

/// The three classes of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassOf {
    Owner,
    Group,
    Other,
}

#[cfg(test)]
mod tests {
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
}

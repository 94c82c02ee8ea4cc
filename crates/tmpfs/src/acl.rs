//! POSIX access control lists, as the kernel's tmpfs has them (acl(5)), as pure functions. The
//! kernel decides about access: it asks for the lists as extended attributes (FUSE_POSIX_ACL). This
//! module keeps a list and the mode of its inode consistent, and computes the lists that a new
//! inode inherits.

use rustix::io::Errno;

/// The attribute of the list that decides about access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the list that new inodes in a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The only version of the format.
const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
/// The permissions of an entry: read, write, execute.
const RWX: u16 = 0o7;

/// One of the two lists of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The list that decides about access.
    Access,
    /// The list that is inherited. Only directories have one.
    Default,
}

impl Which {
    /// Returns the list of this attribute; `None`: the attribute holds no list.
    pub fn of(name: &[u8]) -> Option<Which> {
        match name {
            ACCESS => Some(Which::Access),
            DEFAULT => Some(Which::Default),
            _ => None,
        }
    }

    /// Returns the attribute of the list.
    pub fn name(self) -> &'static [u8] {
        match self {
            Which::Access => ACCESS,
            Which::Default => DEFAULT,
        }
    }
}

/// The subject of an entry, in the order of entries.
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

    /// Returns whether the entry is for one user or group by its number.
    fn is_named(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
    /// The number of a named user or group. Other entries have a number too, without a meaning.
    id: u32,
}

/// Whether the mode expresses the whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The mode expresses all of it, and the list may be dropped.
    Mode,
    /// The list has more entries than the mode has bits.
    BeyondMode,
}

/// A valid list: one entry each for owner, group and others, and a mask where users or groups are
/// named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Parses the value of an attribute. `None`: the list has no entries, which is the same as no
    /// list.
    ///
    /// # Errors
    /// `EINVAL`: the value is no valid list; `EOPNOTSUPP`: the list has another version.
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

    /// Formats the list as the value of an attribute.
    pub fn value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&entry.tag.number().to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// Returns whether entries are sorted, each entry without a number is there once, and a mask is
    /// there at most once, and exactly once where a user or group is named.
    fn is_valid(&self) -> bool {
        let count = |tag: Tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let names_somebody = self.0.iter().any(|entry| entry.tag.is_named());
        self.0.iter().all(|entry| entry.permissions & !RWX == 0)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [Tag::Owner, Tag::OwnerGroup, Tag::Other].into_iter().all(|tag| count(tag) == 1)
            && count(Tag::Mask) <= 1
            && (count(Tag::Mask) == 1 || !names_somebody)
    }

    /// Returns the nine permission bits of the mode that goes with the list. The group's bits are
    /// those of the mask where there is one.
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

    /// Returns the list after chmod(2) to this mode.
    pub fn with_mode(&self, mode: u16) -> Acl {
        self.changed(|tag, _| match tag {
            ClassOf::Owner => mode >> 6 & RWX,
            ClassOf::Group => mode >> 3 & RWX,
            ClassOf::Other => mode & RWX,
        })
    }

    /// Returns the access list and the mode of an inode that is made with `mode` in a directory
    /// with this default list. (The umask does not count where there is a default list.)
    pub fn inherited(&self, mode: u16) -> (Acl, u16) {
        let access = self.changed(|class, permissions| match class {
            ClassOf::Owner => permissions & mode >> 6,
            ClassOf::Group => permissions & mode >> 3,
            ClassOf::Other => permissions & mode,
        });
        let (bits, _) = access.permissions();
        (access, mode & !0o777 | bits)
    }

    /// Returns the list with other permissions in the three entries that the mode stands for.
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
mod tests;

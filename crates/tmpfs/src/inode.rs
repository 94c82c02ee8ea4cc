//! One inode: what it is, its attributes, and how often the kernel knows it.
//!
//! An inode lives as long as somebody holds it: a name in a directory, or the [`InodeTable`](crate::table::InodeTable), which
//! holds it while the kernel knows it (its lookup count is above zero, which open files and mappings see to). When neither does, it is
//! dropped, and its contents with it: a file that was unlinked while it was open goes exactly when the last user goes.

use crate::{
    acl::{Acl, Extent, Which},
    limits::{Charge, InodeReservation},
    xattr::Xattrs,
};
use folioswap_shmem::ShmemObject;
use fuser::{FileAttr, FileType, INodeNo};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::time::{Duration, SystemTime};

/// What tmpfs counts for a name in the size of a directory (the kernel's `BOGO_DIRENT_SIZE`).
const DIRENT_SIZE: u64 = 20;
/// Unit of `st_blocks`.
const BLOCK_SIZE: u64 = 512;
/// Pages of the file system, and what `st_blksize` says.
pub const PAGE_SIZE: u64 = 4096;
/// As relatime has it: an access time that is older is brought up to date in any case.
const ATIME_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What an inode holds, fixed when it is made.
pub enum Content {
    /// A regular file.
    File(ShmemObject),
    /// A directory. Its names are in the [`Namespace`](crate::namespace::Namespace).
    Directory,
    /// A symbolic link and what it points to.
    Symlink(Box<[u8]>),
    /// A fifo, a socket, a character or block device: all of it is in the attributes, the kernel does the rest.
    Node(FileType),
}

/// The attributes that change.
#[derive(Debug)]
pub struct State {
    /// Permissions, set-user-id, set-group-id and sticky bits.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names, for a directory 2 and one for each directory in it.
    pub links: u32,
    /// Names in a directory, zero for others.
    pub entries: u64,
    /// Last read, by the rules of relatime.
    pub atime: SystemTime,
    /// Last change of the contents.
    pub mtime: SystemTime,
    /// Last change of contents or attributes.
    pub ctime: SystemTime,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// How often the kernel has looked it up and not forgotten it. Changed by the inode table alone.
    pub(crate) lookups: u64,
}

/// An inode.
pub struct Inode {
    /// Its number, never used again.
    pub number: u64,
    /// Device number, of devices.
    pub device: u32,
    /// What it holds.
    pub content: Content,
    state: Mutex<State>,
    /// Gives its place among the inodes back when it goes.
    _reservation: InodeReservation,
}

impl Inode {
    /// A new one without a name.
    pub fn new(
        number: u64,
        content: Content,
        permissions: u16,
        owner: (u32, u32),
        device: u32,
        reservation: InodeReservation,
    ) -> Self {
        let now = SystemTime::now();
        let links = if matches!(content, Content::Directory) { 2 } else { 0 };
        let state = State {
            permissions,
            uid: owner.0,
            gid: owner.1,
            links,
            entries: 0,
            atime: now,
            mtime: now,
            ctime: now,
            xattrs: Xattrs::default(),
            lookups: 0,
        };
        Inode { number, device, content, state: Mutex::new(state), _reservation: reservation }
    }

    /// Its attributes, locked. Taken after the lock of the namespace, and never two at once.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The contents of a regular file.
    pub fn object(&self) -> Option<&ShmemObject> {
        match &self.content {
            Content::File(object) => Some(object),
            _ => None,
        }
    }

    /// Its type.
    pub fn kind(&self) -> FileType {
        match &self.content {
            Content::File(_) => FileType::RegularFile,
            Content::Directory => FileType::Directory,
            Content::Symlink(_) => FileType::Symlink,
            Content::Node(kind) => *kind,
        }
    }

    /// Is it a directory?
    pub fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory)
    }

    /// What stat(2) says.
    pub fn attributes(&self) -> FileAttr {
        self.attributes_of(&self.state.lock())
    }

    /// As [`Self::attributes`], for who holds the lock.
    pub fn attributes_of(&self, state: &State) -> FileAttr {
        let (size, pages) = match &self.content {
            Content::File(object) => (object.size(), object.pages()),
            Content::Directory => (DIRENT_SIZE * (state.entries + 2), 0),
            Content::Symlink(target) => (target.len() as u64, 0),
            Content::Node(_) => (0, 0),
        };
        FileAttr {
            ino: INodeNo(self.number),
            size,
            blocks: pages * (PAGE_SIZE / BLOCK_SIZE),
            atime: state.atime,
            mtime: state.mtime,
            ctime: state.ctime,
            crtime: SystemTime::UNIX_EPOCH,
            kind: self.kind(),
            perm: state.permissions,
            nlink: state.links,
            uid: state.uid,
            gid: state.gid,
            rdev: self.device,
            blksize: PAGE_SIZE as u32,
            flags: 0,
        }
    }
}

impl State {
    /// The contents have changed.
    pub fn touch_contents(&mut self) {
        let now = SystemTime::now();
        (self.mtime, self.ctime) = (now, now);
    }

    /// An attribute has changed.
    pub fn touch_attributes(&mut self) {
        self.ctime = SystemTime::now();
    }

    /// chmod(2): an access control list says the same afterwards.
    pub fn set_permissions(&mut self, permissions: u16) {
        self.permissions = permissions;
        if let Some(access) = self.xattrs.acl(Which::Access) {
            self.xattrs.replace_acl(Which::Access, &access.with_mode(permissions));
        }
    }

    /// Sets an access control list, or removes it where `value` has no entries. The mode says as much of an access list as it can; one
    /// that says no more than a mode is not kept. `charge` is the memory of the attribute.
    ///
    /// # Errors
    /// `EINVAL` for what is no list, `EACCES` for a default list of what is no directory, `EOPNOTSUPP` for symbolic links.
    pub fn set_acl(
        &mut self,
        kind: FileType,
        which: Which,
        value: &[u8],
        charge: Charge,
    ) -> Result<(), Errno> {
        if kind == FileType::Symlink {
            return Err(Errno::OPNOTSUPP);
        }
        let acl = Acl::parse(value)?;
        let kept = match (which, acl) {
            (Which::Default, Some(_)) if kind != FileType::Directory => return Err(Errno::ACCESS),
            (Which::Default, acl) => acl,
            (Which::Access, None) => None,
            (Which::Access, Some(acl)) => {
                let (bits, extent) = acl.permissions();
                self.permissions = self.permissions & !0o777 | bits;
                (extent == Extent::BeyondMode).then_some(acl)
            }
        };
        match kept {
            Some(acl) => self.xattrs.set_acl(which, acl.value(), charge),
            // It may not have been there.
            None => drop(self.xattrs.remove(which.name())),
        }
        Ok(())
    }

    /// It was read: the access time moves as relatime has it, which is how tmpfs is mounted unless asked otherwise.
    pub fn touch_access(&mut self) {
        let outdated = self.atime <= self.mtime || self.atime <= self.ctime;
        let now = SystemTime::now();
        if outdated || now.duration_since(self.atime).is_ok_and(|age| age >= ATIME_AGE_MAX) {
            self.atime = now;
        }
    }

    /// Takes set-user-id away, set-group-id where the group may execute, and file capabilities: after somebody without privilege wrote.
    /// `true` when that changed something.
    pub fn drop_privileges(&mut self, kind: FileType) -> bool {
        let mut dropped = self.xattrs.remove_capabilities();
        if kind != FileType::Directory {
            let set_group_id = self.permissions & 0o2010 == 0o2010;
            let kept = self.permissions & !(0o4000 | if set_group_id { 0o2000 } else { 0 });
            dropped |= kept != self.permissions;
            self.permissions = kept;
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Inodes, Memory};

    fn fifo(permissions: u16) -> Inode {
        let reservation = Inodes::new(8, Memory::default()).reserve().expect("room");
        Inode::new(1, Content::Node(FileType::NamedPipe), permissions, (1, 2), 0, reservation)
    }

    #[test]
    fn privileges_go_as_the_kernel_drops_them() {
        for (before, after) in
            [(0o4755, 0o755), (0o6755, 0o755), (0o2744, 0o2744), (0o2754, 0o754), (0o1777, 0o1777)]
        {
            let inode = fifo(before);
            let changed = inode.state().drop_privileges(FileType::RegularFile);
            assert_eq!((inode.state().permissions, changed), (after, before != after), "{before:o}");
        }
        let inode = fifo(0o6755);
        assert!(!inode.state().drop_privileges(FileType::Directory), "a directory keeps its bits");
    }

    #[test]
    fn access_time_is_relative() {
        let inode = fifo(0o644);
        let mut state = inode.state();
        let start = SystemTime::now();
        (state.mtime, state.ctime, state.atime) = (start, start, start + Duration::from_secs(5));
        let before = state.atime;
        state.touch_access();
        assert_eq!(state.atime, before, "it is newer than the last change");
        state.mtime = before + Duration::from_secs(1);
        state.touch_access();
        assert!(state.atime >= start && state.atime != before, "it was older than the last change");
        (state.mtime, state.ctime) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
        state.atime = start - 2 * ATIME_AGE_MAX;
        state.touch_access();
        assert!(state.atime >= start, "it was older than a day");
    }
}

//! One inode: its content, its attributes, and how often the kernel knows it.
//!
//! An inode lives as long as it is held by a name in a directory or by the
//! [`InodeTable`](crate::table::InodeTable), which holds it while the kernel knows it: its lookup
//! count is above zero, as open files and mappings ensure. When neither holds it, the inode and its
//! contents are dropped. So a file that was unlinked while it was open is freed exactly when its
//! last user ends.

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

/// The bytes that tmpfs counts for a name in the size of a directory (the kernel's
/// `BOGO_DIRENT_SIZE`).
const DIRENT_SIZE: u64 = 20;
/// The unit of `st_blocks`.
const BLOCK_SIZE: u64 = 512;
/// The size of the file system's pages, which is also `st_blksize`.
pub const PAGE_SIZE: u64 = folioswap_devices::PAGE_SIZE as u64;
/// relatime updates an access time that is older than this in any case.
const ATIME_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The content of an inode, fixed when it is made.
pub enum Content {
    /// A regular file.
    File(ShmemObject),
    /// A directory. Its names are in the [`Namespace`](crate::namespace::Namespace).
    Directory,
    /// A symbolic link, with its target.
    Symlink(Box<[u8]>),
    /// A fifo, a socket, a character or block device. It has only attributes; the kernel does the
    /// rest.
    Node(FileType),
}

/// The attributes that change.
#[derive(Debug)]
pub struct State {
    /// The permissions, set-user-id, set-group-id and sticky bits.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of names; for a directory, 2 and one for each directory in it.
    pub links: u32,
    /// The number of names in a directory; zero for others.
    pub entries: u64,
    /// The time of the last read, by the rules of relatime.
    pub atime: SystemTime,
    /// The time of the last change of the contents.
    pub mtime: SystemTime,
    /// The time of the last change of contents or attributes.
    pub ctime: SystemTime,
    /// The extended attributes.
    pub xattrs: Xattrs,
    /// How often the kernel has looked the inode up and not forgotten it. Only the inode table
    /// changes it.
    pub(crate) lookups: u64,
}

/// The privileges of a file that a write without privilege takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// The file had some, and has lost them.
    Dropped,
    /// The file had none.
    None,
}

/// An inode.
pub struct Inode {
    /// Its number, which is never reused.
    pub number: u64,
    /// The device number, for devices.
    pub device: u32,
    /// Its content.
    pub content: Content,
    state: Mutex<State>,
    /// Gives the inode's reservation back on drop.
    _reservation: InodeReservation,
}

impl Inode {
    /// Makes an inode without a name.
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

    /// Locks the attributes. Lock order: after the namespace's lock, and never two inodes at once.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the contents of a regular file.
    pub fn object(&self) -> Option<&ShmemObject> {
        match &self.content {
            Content::File(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the file type.
    pub fn kind(&self) -> FileType {
        match &self.content {
            Content::File(_) => FileType::RegularFile,
            Content::Directory => FileType::Directory,
            Content::Symlink(_) => FileType::Symlink,
            Content::Node(kind) => *kind,
        }
    }

    /// Returns whether the inode is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory)
    }

    /// Returns the attributes for stat(2).
    pub fn attributes(&self) -> FileAttr {
        self.attributes_of(&self.state.lock())
    }

    /// Returns [`Self::attributes`] for a caller that holds the lock.
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
    /// Updates the times after a change of the contents.
    pub fn touch_contents(&mut self) {
        let now = SystemTime::now();
        (self.mtime, self.ctime) = (now, now);
    }

    /// Updates the time after a change of an attribute.
    pub fn touch_attributes(&mut self) {
        self.ctime = SystemTime::now();
    }

    /// Does chmod(2). An access control list is changed to agree with the mode.
    pub fn set_permissions(&mut self, permissions: u16) {
        self.permissions = permissions;
        if let Some(access) = self.xattrs.acl(Which::Access) {
            self.xattrs.replace_acl(Which::Access, &access.with_mode(permissions));
        }
    }

    /// Sets an access control list, or removes it where `value` has no entries. The mode is changed
    /// to agree with an access list, and a list that the mode expresses completely is not kept.
    /// `charge` is the memory of the attribute.
    ///
    /// # Errors
    /// `EINVAL`: `value` is no list; `EACCES`: a default list, but no directory; `EOPNOTSUPP`: a
    /// symbolic link.
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
            // The list may not have existed.
            None => drop(self.xattrs.remove(which.name())),
        }
        Ok(())
    }

    /// Updates the access time after a read, by the rules of relatime, which is tmpfs's default.
    pub fn touch_access(&mut self) {
        let outdated = self.atime <= self.mtime || self.atime <= self.ctime;
        let now = SystemTime::now();
        if outdated || now.duration_since(self.atime).is_ok_and(|age| age >= ATIME_AGE_MAX) {
            self.atime = now;
        }
    }

    /// Clears the set-user-id bit, the set-group-id bit where the group may execute, and file
    /// capabilities, after a write by a user without privilege.
    pub fn drop_privileges(&mut self, kind: FileType) -> Privileges {
        let mut dropped = self.xattrs.remove_capabilities().is_ok();
        if kind != FileType::Directory {
            let set_group_id = self.permissions & 0o2010 == 0o2010;
            let kept = self.permissions & !(0o4000 | if set_group_id { 0o2000 } else { 0 });
            dropped |= kept != self.permissions;
            self.permissions = kept;
        }
        if dropped { Privileges::Dropped } else { Privileges::None }
    }
}

#[cfg(test)]
mod tests;
